"""Allow: keeps only the named classes."""

from collections.abc import Sequence
from typing import Literal

from torch import Tensor

from mappings.class_ids import ClassIds, check_ids, member
from mappings.parameters import Row
from mappings.processor import Processor, masked


class Allow(Processor):
    """Allow: keeps only the named classes.

    The others get exactly zero. A row with none of them unmasked has no answer.
    """

    name: Literal["allow"] = "allow"
    ids: ClassIds
    """The class ids kept, for all rows or a list a row."""

    by_class = True

    def check_classes(self, classes: Sequence[int]) -> None:
        check_ids(self.ids, classes)

    def apply(self, logits: Tensor, row: Row) -> Tensor:
        return masked(logits, member(row["ids"], logits.shape[-1]))
