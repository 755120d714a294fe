"""Top-k: keeps the k largest logits."""

from typing import Literal

from torch import Tensor

from mappings.compact import Kept
from mappings.parameters import Count, PerRow, Row
from mappings.processor import LIGHT, Processor
from mappings.selection import Ties, top_classes


class TopK(Processor):
    """Top-k: keeps the k largest logits.

    Order is by value, then by lower class id. k ≥ n keeps all, k = 1 the argmax. Ties "first"
    keeps exactly k, "all" also what equals the k-th. Cost: O(n log k).

    Reference: Fan, Lewis, Dauphin 2018, "Hierarchical Neural Story Generation".
    """

    name: Literal["top_k"] = "top_k"
    k: PerRow[Count]
    """Classes kept (a count)."""
    ties: Ties = "first"
    """What happens to classes equal to the last one kept."""

    elements_at_once = LIGHT

    def kept(self, logits: Tensor, row: Row) -> Kept:
        return top_classes(logits, row["k"], self.ties)
