"""Lists of class ids, and of numbers beside them, for all rows or one list a row."""

from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

import torch
from pydantic import Discriminator, Field, Tag
from torch import Tensor

from mappings.errors import InvalidParameter
from mappings.parameters import ClassId, PerRowListMark, lists_by_row

T = TypeVar("T")


def _one_or_rows(value: object) -> str:
    return "rows" if isinstance(value, list) and lists_by_row(value) is not None else "one"


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


def check_ids(ids: Sequence[Any], classes: Sequence[int]) -> None:
    """Raises InvalidParameter for an id that is not below its row's classes."""
    if not classes:
        return
    lists = lists_by_row(ids)
    narrowest = min(range(len(classes)), key=lambda row: classes[row])
    for row in [narrowest] if lists is None else range(len(lists)):
        largest = max(ids if lists is None else lists[row], default=-1)
        if largest >= classes[row]:
            message = f"class id {largest} is not below the {classes[row]} classes of row {row}"
            raise InvalidParameter.at(("ids",), message)


def check_pairs(ids: Sequence[Any], beside: Sequence[Any], name: str) -> None:
    """Raises ValueError unless there is one number beside each id."""
    if _lengths(ids) != _lengths(beside):
        raise ValueError(f"ids and {name} must have the same length: one of the {name} for each id")


def _lengths(part: Sequence[Any]) -> int | list[int]:
    lists = lists_by_row(part)
    return len(part) if lists is None else [len(entry) for entry in lists]


def member(ids: Tensor, classes: int) -> Tensor:
    """Whether each class is named, (rows or 1, classes)."""
    named = torch.zeros(ids.shape[0], classes + 1, dtype=torch.bool, device=ids.device)
    return named.scatter_(-1, torch.where(ids < 0, classes, ids), True)[:, :classes]


def totals(ids: Tensor, values: Tensor, classes: int) -> Tensor:
    """The sum of the numbers beside each class, (rows or 1, classes), 0 for the others."""
    sums = torch.zeros(ids.shape[0], classes + 1, dtype=torch.float64, device=ids.device)
    places = torch.where(ids < 0, classes, ids)
    return sums.scatter_add_(-1, places, values.double())[:, :classes]
