"""Reads named parameter sets (a mapping and its fields) from what a client sent."""

import difflib
from collections.abc import Mapping as Dict
from collections.abc import Sequence
from typing import Any, TypeGuard, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from mappings.base import Mapping
from mappings.errors import InvalidParameter
from mappings.parameters import Parameters
from mappings.processor import Processor
from mappings.registry import registered
from schemas.errors import (
    MAX_NAME,
    InvalidRequest,
    Loc,
    invalid,
    path,
    shortened,
    unknown_fields,
)

P = TypeVar("P", bound=Parameters)

MAX_LISTED = 1 << 20
"""The most numbers in the lists of one field, each row counted as long as the longest."""

ALIASES = {"α": "alpha", "λ": "lam", "lambda": "lam", "ε": "epsilon", "τ": "temperature"}
"""Other names under which a field is found, where the mapping has that field."""


def read_named(
    registry: Dict[str, type[P]],
    value: object,
    *,
    loc: Loc,
    widths: Sequence[int],
    known: Sequence[str] = (),
) -> P:
    """Reads a mapping or a processor: an object with its name and parameters, or just its name.

    Args:
        registry: what there is, by name.
        value: what the client sent.
        loc: where in the request it stands; () where its fields stand beside the request's own.
        widths: the classes of each row of logits (a count each).
        known: names that are also understood at this place.

    Raises:
        InvalidRequest: it is neither, or its parameters are not right.
        InvalidParameter: a parameter does not fit the rows.
        UnknownName: no mapping has this name.
    """
    if isinstance(value, str):
        value = {"name": value}
    there_are = f"there are {', '.join(registry)}"
    if not isinstance(value, dict):
        asked = f"{path(loc)} is missing; give" if value is None else f"{path(loc)} should be"
        raise InvalidRequest.at(loc, f"{asked} a name or an object with a name; {there_are}")
    name = value.get("name")
    if not isinstance(name, str):
        where = (*loc, "name")
        raise InvalidRequest.at(where, f"{path(where)} should be a name; {there_are}")
    if name not in registry and loc[:1] == ("processors",):
        near = difflib.get_close_matches(name[:MAX_NAME], registry, n=1)
        meant = f"did you mean {near[0]}? " if near else ""
        message = f"{path(loc)} is unknown: {shortened(name)}; {meant}{there_are}"
        raise InvalidRequest.at((*loc, "name"), message)
    model = registered(registry, name)
    return read_parameters(model, value, loc=loc, widths=widths, known=known)


def read_parameters(
    model: type[P],
    fields: Dict[str, object],
    *,
    loc: Loc,
    widths: Sequence[int],
    known: Sequence[str] = (),
) -> P:
    """Validates the fields of one mapping, also against the rows they are for.

    Args:
        model: the registered class.
        fields: its parameters by name, as the client sent them; lists of numbers may be numpy
            arrays, and rows of numbers lists of such arrays.
        loc: where in the request they stand.
        widths: the classes of each row of logits (a count each).
        known: names that are also understood at this place, listed when a name is not.

    Raises:
        InvalidRequest: names are unknown or given twice, or values are outside their bounds.
        InvalidParameter: a parameter does not fit the rows.
    """
    named = _renamed(model, fields, loc)
    unknown = [name for name in named if name not in model.model_fields]
    if unknown:
        choices = [name for name in model.model_fields if name != "name"]
        about = str(model.model_fields["name"].default)
        raise unknown_fields(unknown, (*known, *choices), loc, about)
    _convert_arrays(model, named, loc, len(widths))
    try:
        parameters = model.model_validate(named)
    except ValidationError as error:
        raise invalid(error, loc) from None
    try:
        parameters.check_rows(len(widths))
        if isinstance(parameters, Mapping | Processor):
            parameters.check_classes(widths)
    except InvalidParameter as error:
        raise error.inside(*loc) from None
    return parameters


def _convert_arrays(model: type[Parameters], named: dict[str, Any], loc: Loc, rows: int) -> None:
    """Turns numpy arrays into what the fields take, after the cheap checks of their size."""
    for name in model.per_row_fields():
        value, where = named.get(name), (*loc, name)
        if isinstance(value, np.ndarray | list) and len(value) != rows:
            message = f"{path(where)} has {len(value)} values for {rows} rows; "
            raise InvalidParameter.at(where, message + "give one, or one a row")
        if _is_rows(value):
            message = f"{path(where)} should be a number, or a list of one number a row"
            raise InvalidRequest.at(where, message)
        if isinstance(value, np.ndarray):
            named[name] = value.tolist()
    for name in model.per_row_list_fields():
        value, where = named.get(name), (*loc, name)
        arrays: list[NDArray[Any]] = [value] if isinstance(value, np.ndarray) else []
        if _is_rows(value):
            arrays = value
        longest = max((len(array) for array in arrays), default=0)
        if len(arrays) * longest > MAX_LISTED:
            size = f"{len(arrays):,} rows × {longest:,} numbers"
            message = f"{path(where)} has {size}, more than {MAX_LISTED:,}; give fewer"
            raise InvalidParameter.at(where, message)
        lists = [array.tolist() for array in arrays]
        if lists:
            named[name] = lists if _is_rows(value) else lists[0]
    for name in model.per_class_fields():
        value = named.get(name)
        # Tensors, as lists of so many numbers would hold up every other thread.
        if _is_rows(value):
            named[name] = pad_sequence([_tensor(row) for row in value], True, torch.nan)
        elif isinstance(value, np.ndarray):
            named[name] = _tensor(value)


def _is_rows(value: object) -> TypeGuard[list[NDArray[Any]]]:
    return isinstance(value, list) and bool(value) and isinstance(value[0], np.ndarray)


def _tensor(array: NDArray[Any]) -> Tensor:
    return torch.from_numpy(array.astype(np.float64, copy=False))


def _renamed(model: type[Parameters], fields: Dict[str, object], loc: Loc) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for name, value in fields.items():
        field = ALIASES.get(name, name)
        if name not in model.model_fields and field in model.model_fields:
            name = field
        if name in named:
            where = (*loc, name)
            raise InvalidRequest.at(where, f"{path(where)} is given twice; give it once")
        named[name] = value
    return named
