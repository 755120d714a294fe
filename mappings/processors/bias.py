"""Bias: adds a number to the logits of the named classes."""

from collections.abc import Sequence
from typing import Literal, Self

from pydantic import model_validator
from torch import Tensor

from mappings.class_ids import ClassIds, ClassValues, check_ids, check_pairs, totals
from mappings.parameters import Row
from mappings.processor import Processor


class Bias(Processor):
    """Bias: adds a number to the logits of the named classes.

    x_i + value; keeps everything. An id named twice gets both. A masked class stays masked.
    """

    name: Literal["bias"] = "bias"
    ids: ClassIds
    """The class ids changed, for all rows or a list a row."""
    values: ClassValues
    """What is added to each of them (in units of the logits)."""

    @model_validator(mode="after")
    def _paired(self) -> Self:
        check_pairs(self.ids, self.values, "values")
        return self

    by_class = True

    def check_classes(self, classes: Sequence[int]) -> None:
        check_ids(self.ids, classes)

    def apply(self, logits: Tensor, row: Row) -> Tensor:
        return logits.double() + totals(row["ids"], row["values"], logits.shape[-1])
