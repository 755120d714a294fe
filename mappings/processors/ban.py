"""Ban: masks the named classes."""

from collections.abc import Sequence
from typing import Literal

from torch import Tensor

from mappings.class_ids import ClassIds, check_ids, member
from mappings.parameters import Row
from mappings.processor import Processor, masked


class Ban(Processor):
    """Ban: masks the named classes, which get exactly zero.

    A row with nothing else unmasked has no answer.
    """

    name: Literal["ban"] = "ban"
    ids: ClassIds
    """The class ids masked, for all rows or a list a row."""

    by_class = True

    def check_classes(self, classes: Sequence[int]) -> None:
        check_ids(self.ids, classes)

    def apply(self, logits: Tensor, row: Row) -> Tensor:
        return masked(logits, ~member(row["ids"], logits.shape[-1]))
