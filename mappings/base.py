"""What every mapping is: a frozen model whose fields are its parameters, and a batched solve."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self, TypeVar, get_args

import torch
from pydantic import BaseModel, ConfigDict, Discriminator, Field, PlainValidator, Tag
from pydantic.fields import FieldInfo
from torch import Tensor

from mappings.errors import InvalidParameter
from mappings.solution import Solution

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PerRowMark:
    """Marks a field that takes one value, or one a row."""


@dataclass(frozen=True, slots=True)
class PerClassMark:
    """Marks a field of one value a class, or rows × classes."""


def _one_or_rows(value: object) -> str:
    return "rows" if isinstance(value, list) or hasattr(value, "tolist") else "one"


PerRow = Annotated[
    Annotated[T, Tag("one")] | Annotated[list[T], Tag("rows")],
    Discriminator(_one_or_rows),
    PerRowMark(),
]
"""A value, or a list of one value a row; reaches `solve` as a tensor (rows, 1)."""

Row = dict[str, Tensor]
"""Per-row and per-class parameters by field name: (rows, 1), or (rows or 1, classes)."""

NonNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1, le=1 << 53)]
ClassId = Annotated[int, Field(ge=0, lt=1 << 53)]
Seed = Annotated[int, Field(ge=0, lt=1 << 64)]


def _weights(value: object) -> Tensor:
    """Weights (classes,) or (rows, classes) as float64; shorter rows are padded with NaN."""
    if isinstance(value, Tensor):
        weights = value.double()
    else:
        value = value.tolist() if hasattr(value, "tolist") else value
        if not isinstance(value, list) or not value:
            raise ValueError("must be a list of numbers, one a class, or one such list a row")
        nested = [entry for entry in value if isinstance(entry, list)]
        lines = nested if len(nested) == len(value) else [value]
        if any(kind not in (int, float) for line in lines for kind in set(map(type, line))):
            raise ValueError("every weight must be a number")
        width = max(len(line) for line in lines)
        padded = [line + [torch.nan] * (width - len(line)) for line in lines]
        weights = torch.tensor(padded if nested else padded[0], dtype=torch.float64)
    if weights.ndim not in (1, 2) or bool((weights < 0).any() | weights.isinf().any()):
        raise ValueError("every weight must be a finite number of at least 0")
    return weights


ClassWeights = Annotated[
    Tensor,
    PlainValidator(_weights, json_schema_input_type=list[float] | list[list[float]]),
    PerClassMark(),
]
"""Nonnegative numbers, one a class, or rows × classes."""


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
        """Names of the fields that take one value a row."""
        return tuple(name for name, field in cls.model_fields.items() if _has(field, PerRowMark))

    @classmethod
    def per_class_fields(cls) -> tuple[str, ...]:
        """Names of the fields that take one value a class."""
        return tuple(name for name, field in cls.model_fields.items() if _has(field, PerClassMark))

    @classmethod
    def static_fields(cls) -> tuple[str, ...]:
        """Names of the fields that every row of a batch must share."""
        varying = {"name", *cls.per_row_fields(), *cls.per_class_fields()}
        return tuple(name for name in cls.model_fields if name not in varying)

    def batch_key(self) -> tuple[object, ...]:
        """What two requests must agree on to share a batch."""
        given = tuple(getattr(self, name) is None for name in self.per_row_fields())
        return type(self), *(getattr(self, name) for name in self.static_fields()), given

    def check_rows(self, rows: int) -> None:
        """Raises InvalidParameter when a list of per-row values has another length than rows."""
        for name in self.per_row_fields():
            value = getattr(self, name)
            if isinstance(value, list) and len(value) != rows:
                message = f"{name} has {len(value)} values for {rows} rows; give one, or one a row"
                raise InvalidParameter.at((name,), message)

    def take(self, start: int, stop: int) -> Self:
        """These parameters for rows start (included) to stop (excluded)."""
        cut: dict[str, Any] = {}
        for name in self.per_row_fields():
            value = getattr(self, name)
            if isinstance(value, list):
                cut[name] = value[start:stop]
        for name in self.per_class_fields():
            value = getattr(self, name)
            if value.ndim == 2:
                cut[name] = value[start:stop]
        return self.model_copy(update=cut) if cut else self

    def bind(self, rows: int, device: torch.device) -> Row:
        """The per-row fields as tensors (rows, 1), the per-class ones (rows or 1, classes)."""
        bound: Row = {}
        for name in self.per_row_fields():
            value = getattr(self, name)
            if value is not None:
                bound[name] = _column(value, rows).to(device)
        for name in self.per_class_fields():
            bound[name] = torch.atleast_2d(getattr(self, name)).to(device)
        return bound


def _has(field: FieldInfo, mark: type) -> bool:
    """Whether a field carries a mark, also inside `... | None`."""
    metadata = [*field.metadata]
    for member in get_args(field.annotation):
        metadata += getattr(member, "__metadata__", ())
    return any(isinstance(entry, mark) for entry in metadata)


def _column(value: float | list[float], rows: int) -> Tensor:
    values = value if isinstance(value, list) else [value]
    if all(isinstance(number, int) for number in values):
        # Seeds are unsigned 64-bit; their bits are kept in the signed type torch has.
        wrapped = [number - (1 << 64) if number >= 1 << 63 else number for number in values]
        column = torch.tensor(wrapped, dtype=torch.int64)
    else:
        column = torch.tensor(values, dtype=torch.float64)
    return column.reshape(-1, 1).expand(rows, 1)


class Mapping(Parameters):
    """A mapping from logits to a distribution, with its parameters.

    A subclass is one file in `mappings/catalogue`: the first line of its docstring says what it
    is, the rest its formula, ties, limits, cost and reference; its fields carry their bounds.
    """

    name: str
    """The mapping's registered name."""
    temperature: PerRow[NonNegative] = 1.0
    """Divides the logits (dimensionless); 0 is the limit, where the maxima share the mass."""

    shift_invariant: ClassVar[bool] = True
    """Whether adding a constant to a row's logits changes nothing."""
    monotone: ClassVar[bool] = True
    """Whether a larger logit never has a smaller probability in its row."""
    sparse: ClassVar[bool] = False
    """Whether unmasked classes can get exactly zero."""
    undefined: ClassVar[str] = "the mapping is undefined for this row"
    """What a caller reads of a row that `undefined_rows` picks out."""

    def check_classes(self, classes: Sequence[int]) -> None:
        """Raises InvalidParameter when a parameter does not fit rows of so many classes each."""

    def undefined_rows(self, logits: Tensor, row: Row) -> Tensor | None:
        """Rows (rows,) that have valid logits but no answer under this mapping; None: none."""
        return None

    @abstractmethod
    def solve(self, logits: Tensor, row: Row) -> Solution:
        """Maps a batch of rows to distributions.

        Args:
            logits: (rows, classes), float32 or float64, contiguous, −inf where masked; every
                row has a finite maximum. Never written to.
            row: this mapping's per-row parameters, (rows, 1) each.
        """


def joined(parts: Sequence[tuple[Parameters, int]]) -> Parameters:
    """One set of parameters for several requests of one batch key, each with its count of rows."""
    first = parts[0][0]
    if len(parts) == 1:
        return first
    update: dict[str, Any] = {}
    for name in first.per_row_fields():
        if getattr(first, name) is None:
            continue
        values: list[Any] = []
        for part, rows in parts:
            value = getattr(part, name)
            values += value if isinstance(value, list) else [value] * rows
        update[name] = values
    for name in first.per_class_fields():
        update[name] = torch.cat(
            [torch.atleast_2d(getattr(part, name)).expand(rows, -1) for part, rows in parts]
        )
    return first.model_copy(update=update)
