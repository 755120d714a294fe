"""Lists of class ids, and of numbers beside them, for all rows or one list a row."""

from collections.abc import Sequence
from typing import Annotated, TypeVar

import torch
from pydantic import Discriminator, Field, Tag
from torch import Tensor

from mappings.errors import InvalidParameter
from mappings.parameters import ClassId, PerRowListMark

T = TypeVar("T")


def _one_or_rows(value: object) -> str:
    return "rows" if isinstance(value, list) and value and isinstance(value[0], list) else "one"


Lists = Annotated[
    Annotated[list[T], Field(fail_fast=True), Tag("one")]
    | Annotated[
        list[Annotated[list[T], Field(fail_fast=True)]], Field(fail_fast=True), Tag("rows")
    ],
    Discriminator(_one_or_rows),
]
ClassIds = Annotated[Lists[ClassId], PerRowListMark(-1)]
"""Class ids; reach `apply` as (rows or 1, longest) int64, padded with −1."""
ClassValues = Annotated[Lists[float], PerRowListMark(0.0)]
"""A number beside each class id; reach `apply` as float64, padded with 0."""
ClassCounts = Annotated[Lists[Annotated[int, Field(ge=0, le=1 << 53)]], PerRowListMark(0)]
"""A count beside each class id; reach `apply` as int64, padded with 0."""


def check_ids(ids: list[int] | list[list[int]], classes: Sequence[int]) -> None:
    """Raises InvalidParameter for an id that is not below its row's classes."""
    nested = bool(ids) and isinstance(ids[0], list)
    narrowest = min(range(len(classes)), key=lambda row: classes[row], default=None)
    if narrowest is None:
        return
    for row in range(len(ids)) if nested else [narrowest]:
        listed = ids[row] if nested else ids
        largest = max(listed, default=-1)  # type: ignore[arg-type]
        if largest >= classes[row]:  # type: ignore[operator]
            message = f"class id {largest} is not below the {classes[row]} classes of row {row}"
            raise InvalidParameter.at(("ids",), message)


def check_pairs(ids: Sequence[object], beside: Sequence[object], name: str) -> None:
    """Raises ValueError unless there is one number beside each id."""
    nested = [isinstance(part[0], list) if part else False for part in (ids, beside)]
    lengths = [
        [len(entry) for entry in part] if rows else len(part)  # type: ignore[arg-type]
        for part, rows in zip((ids, beside), nested, strict=True)
    ]
    if lengths[0] != lengths[1]:
        raise ValueError(f"ids and {name} must have the same length: one of the {name} for each id")


def member(ids: Tensor, classes: int) -> Tensor:
    """Whether each class is named, (rows or 1, classes)."""
    named = torch.zeros(ids.shape[0], classes + 1, dtype=torch.bool, device=ids.device)
    return named.scatter_(-1, torch.where(ids < 0, classes, ids), True)[:, :classes]


def totals(ids: Tensor, values: Tensor, classes: int) -> Tensor:
    """The sum of the numbers beside each class, (rows or 1, classes), 0 for the others."""
    sums = torch.zeros(ids.shape[0], classes + 1, dtype=torch.float64, device=ids.device)
    places = torch.where(ids < 0, classes, ids)
    return sums.scatter_add_(-1, places, values.double())[:, :classes]
