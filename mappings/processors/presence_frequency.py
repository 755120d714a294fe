"""Presence and frequency penalties: subtract from the logits of classes already used."""

from collections.abc import Sequence
from typing import Literal, Self

from pydantic import model_validator
from torch import Tensor

from mappings.class_ids import ClassCounts, ClassIds, check_ids, check_pairs, totals
from mappings.parameters import PerRow, Row
from mappings.processor import Processor


class PresenceFrequency(Processor):
    """Presence and frequency penalties: subtract from the logits of classes already used.

    x − presence − frequency · count for the ids with count > 0; keeps everything. Negative
    penalties favour what was used. An id named twice has the sum of its counts.
    """

    name: Literal["presence_frequency"] = "presence_frequency"
    presence: PerRow[float] = 0.0
    """Subtracted once from each class used (in units of the logits)."""
    frequency: PerRow[float] = 0.0
    """Subtracted for each time a class was used (in units of the logits)."""
    ids: ClassIds
    """The class ids used, for all rows or a list a row."""
    counts: ClassCounts
    """How many times each of them was used (a count)."""

    @model_validator(mode="after")
    def _paired(self) -> Self:
        check_pairs(self.ids, self.counts, "counts")
        return self

    by_class = True

    def check_classes(self, classes: Sequence[int]) -> None:
        check_ids(self.ids, classes)

    def apply(self, logits: Tensor, row: Row) -> Tensor:
        counts = totals(row["ids"], row["counts"], logits.shape[-1])
        penalty = row["presence"] * (counts > 0) + row["frequency"] * counts
        return logits.double() - penalty
