"""Named parameters: frozen, strictly validated, some of them one a row."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Self, TypeVar, get_args

import torch
from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag
from pydantic.fields import FieldInfo
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from mappings.errors import InvalidParameter

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PerRowMark:
    """Marks a field that takes one value, or one a row."""


@dataclass(frozen=True, slots=True)
class PerRowListMark:
    """Marks a field that takes one list, or one list a row; shorter ones are padded."""

    padding: float


@dataclass(frozen=True, slots=True)
class PerClassMark:
    """Marks a field of one value a class, or rows × classes."""


def _one_or_rows(value: object) -> str:
    return "rows" if isinstance(value, list) else "one"


def _listed(value: Any) -> Any:
    """Tensors and arrays as the lists they hold."""
    return value.tolist() if hasattr(value, "tolist") else value


PerRow = Annotated[
    Annotated[T, Tag("one")] | Annotated[list[T], Field(fail_fast=True), Tag("rows")],
    Discriminator(_one_or_rows),
    PerRowMark(),
    BeforeValidator(_listed),
]
"""A value, or a list of one value a row; reaches `solve` as a tensor (rows, 1)."""

NO_WEIGHT = -1.0
"""Stands behind the last value of a per-class row shorter than the others."""

Row = dict[str, Tensor]
"""Per-row and per-class parameters by field name: (rows, 1), or (rows or 1, classes)."""

NonNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
PositiveTemperature = Annotated[
    PerRow[Positive],
    Field(description="Divides the logits (dimensionless); above 0, since shifts matter."),
]
"""The temperature of a mapping that is not shift-invariant and has no limit at 0."""
Fraction = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1, le=1 << 53)]
ClassId = Annotated[int, Field(ge=0, lt=1 << 53)]
Seed = Annotated[int, Field(ge=0, lt=1 << 64)]


class Parameters(BaseModel):
    """A frozen, strictly validated set of named parameters, some of them one a row.

    Per-row fields may differ between the rows of one batch; all others (static fields) are
    the batch key, so that requests which agree on them can share one evaluation.
    """

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        arbitrary_types_allowed=True,
    )

    @classmethod
    def per_row_fields(cls) -> tuple[str, ...]:
        """Names of the fields that take one value, or one a row."""
        return _marked(cls, PerRowMark)

    @classmethod
    def per_class_fields(cls) -> tuple[str, ...]:
        """Names of the fields that take one value a class, for all rows or each."""
        return _marked(cls, PerClassMark)

    @classmethod
    def per_row_list_fields(cls) -> tuple[str, ...]:
        """Names of the fields that take one list, or one list a row."""
        return _marked(cls, PerRowListMark)

    @classmethod
    def static_fields(cls) -> tuple[str, ...]:
        """Names of the fields that every row of a batch must share."""
        return _unmarked(cls)

    def batch_key(self) -> tuple[object, ...]:
        """What two requests must agree on to share a batch."""
        absent = tuple(getattr(self, name) is None for name in _optional(type(self)))
        return type(self), *(getattr(self, name) for name in self.static_fields()), absent

    def _by_row(self) -> dict[str, list[Any] | Tensor]:
        """The fields that were given row by row."""
        given: dict[str, list[Any] | Tensor] = {}
        for name in self.per_row_fields():
            if isinstance(getattr(self, name), list):
                given[name] = getattr(self, name)
        for name in self.per_row_list_fields():
            lists = lists_by_row(getattr(self, name))
            if lists is not None:
                given[name] = lists
        for name in self.per_class_fields():
            if getattr(self, name).ndim == 2:
                given[name] = getattr(self, name)
        return given

    def check_rows(self, rows: int) -> None:
        """Raises InvalidParameter when what was given row by row is not for so many rows."""
        for name, value in self._by_row().items():
            if len(value) != rows:
                message = f"{name} is given for {len(value)} rows of {rows}; give one, or one a row"
                raise InvalidParameter.at((name,), message)

    def take(self, start: int, stop: int) -> Self:
        """These parameters for rows start (included) to stop (excluded)."""
        cut = {name: value[start:stop] for name, value in self._by_row().items()}
        return self.model_copy(update=cut) if cut else self

    def bind(self, rows: int, device: torch.device) -> Row:
        """The fields that may vary, as tensors of `rows` rows, or of 1 where all share them."""
        bound: Row = {}
        for name in self.per_row_fields():
            value = getattr(self, name)
            if value is not None:
                bound[name] = _column(value).expand(rows, 1).to(device)
        for name in self.per_class_fields():
            bound[name] = torch.atleast_2d(getattr(self, name)).to(device)
        for name in self.per_row_list_fields():
            padding = _mark(type(self).model_fields[name], PerRowListMark)
            bound[name] = _padded(getattr(self, name), padding.padding).to(device)
        return bound


M = TypeVar("M")
P = TypeVar("P", bound=Parameters)


def _marks(field: FieldInfo) -> list[Any]:
    """Everything a field is annotated with, also inside `... | None`."""
    marks = [*field.metadata]
    for member in get_args(field.annotation):
        marks += getattr(member, "__metadata__", ())
    return marks


def _mark(field: FieldInfo, kind: type[M]) -> M:
    return next(mark for mark in _marks(field) if isinstance(mark, kind))


@cache
def _marked(parameters: type[Parameters], kind: type) -> tuple[str, ...]:
    fields = parameters.model_fields.items()
    return tuple(
        name for name, field in fields if any(isinstance(mark, kind) for mark in _marks(field))
    )


@cache
def _unmarked(parameters: type[Parameters]) -> tuple[str, ...]:
    marks = (PerRowMark, PerRowListMark, PerClassMark)
    varying = {"name"}.union(*(_marked(parameters, mark) for mark in marks))
    return tuple(name for name in parameters.model_fields if name not in varying)


@cache
def _optional(parameters: type[Parameters]) -> tuple[str, ...]:
    """Names of the per-row fields that need not be given at all."""
    fields = parameters.model_fields
    return tuple(
        name
        for name in _marked(parameters, PerRowMark)
        if type(None) in get_args(fields[name].annotation)
    )


def _column(value: float | list[float]) -> Tensor:
    values = value if isinstance(value, list) else [value]
    if all(isinstance(number, int) for number in values):
        # Seeds are unsigned 64-bit; their bits are kept in the signed type torch has.
        wrapped = [number - (1 << 64) if number >= 1 << 63 else number for number in values]
        return torch.tensor(wrapped, dtype=torch.int64).unsqueeze(-1)
    return torch.tensor(values, dtype=torch.float64).unsqueeze(-1)


def lists_by_row(value: Sequence[Any]) -> list[list[Any]] | None:
    """The lists, where they were given one a row; None where all rows share the one."""
    return list(value) if value and isinstance(value[0], list) else None


def _padded(value: list[Any], padding: float) -> Tensor:
    lines = lists_by_row(value) or [value]
    dtype = torch.int64 if isinstance(padding, int) else torch.float64
    tensors = [torch.tensor(line, dtype=dtype) for line in lines]
    return pad_sequence(tensors, batch_first=True, padding_value=padding)


def joined(parts: Sequence[tuple[P, int]]) -> P:
    """One set of parameters for several requests of one batch key, each with its count of rows."""
    first = parts[0][0]
    if len(parts) == 1:
        return first
    update: dict[str, Any] = {}
    by_row = [part._by_row() for part, _ in parts]
    for name in (*first.per_row_fields(), *first.per_row_list_fields()):
        if getattr(first, name) is None:
            continue
        values: list[Any] = []
        for (part, rows), given in zip(parts, by_row, strict=True):
            own = given.get(name)
            values += [getattr(part, name)] * rows if own is None else own
        update[name] = values
    for name in first.per_class_fields():
        lines = [torch.atleast_2d(getattr(part, name)).expand(rows, -1) for part, rows in parts]
        width = max(line.shape[-1] for line in lines)
        padded = [pad(line, (0, width - line.shape[-1]), value=NO_WEIGHT) for line in lines]
        update[name] = torch.cat(padded)
    return first.model_copy(update=update)
