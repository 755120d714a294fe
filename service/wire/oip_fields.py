"""Reads fields of the Open Inference Protocol's JSON.

What is not as it should be is a MalformedBody that says where in the body it stands.
"""

from collections.abc import Collection
from typing import Any, NoReturn

from mappings.errors import Problem
from schemas.errors import MAX_NAME, Loc, path, shortened
from service.errors import MalformedBody

MAX_DIMENSION = (1 << 63) - 1
"""The largest number that the protocol has."""


def refuse(loc: Loc, message: str) -> NoReturn:
    """Raises the error of something malformed at `loc`; its name begins the message."""
    text = f"{path(loc)} {message}" if loc else message
    raise MalformedBody(text, (Problem(loc, text),))


def object_at(value: object, loc: Loc) -> dict[str, Any]:
    """An object; one that is not there, or null, is empty. Raises MalformedBody for all else."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        refuse(loc, "should be an object")
    return value


def only(fields: dict[str, Any], known: Collection[str], loc: Loc) -> None:
    """Raises MalformedBody for fields that nothing reads."""
    for name in fields:
        if name not in known:
            where = path((*loc, name[:MAX_NAME]))
            refuse((), f"unknown field {shortened(where)}; there are {', '.join(known)}")


def list_at(value: object, loc: Loc) -> list[Any]:
    """A list; one that is not there, or null, is empty. Raises MalformedBody for all else."""
    if value is None:
        return []
    if not isinstance(value, list):
        refuse(loc, "should be a list")
    return value


def text_at(value: object, loc: Loc) -> str:
    """A text. Raises MalformedBody for all else."""
    if not isinstance(value, str):
        refuse(loc, "should be a string")
    return value


def flag_at(value: object, loc: Loc) -> bool:
    """True or false. Raises MalformedBody for all else."""
    if not isinstance(value, bool):
        refuse(loc, "should be true or false")
    return value


def count_at(value: object, loc: Loc, least: int = 0) -> int:
    """A whole number from `least` to MAX_DIMENSION. Raises MalformedBody for all else."""
    if type(value) is not int or not least <= value <= MAX_DIMENSION:
        refuse(loc, f"should be a whole number, {least} or more and below 2^63")
    return value


def shape_at(value: object, loc: Loc) -> tuple[int, ...]:
    """A shape of one or two dimensions. Raises MalformedBody for all else.

    Of a longer one no more is looked at than shows that it is longer.
    """
    shape = tuple(
        count_at(size, (*loc, place)) for place, size in enumerate(list_at(value, loc)[:3])
    )
    if len(shape) not in (1, 2):
        refuse(loc, "should have one or two dimensions: [rows] or [rows, classes]")
    return shape
