"""Top-a: keeps classes of at least a share of the largest probability squared."""

from typing import Literal

from torch import Tensor

from mappings.compact import Kept, gather
from mappings.parameters import Fraction, PerRow, Row
from mappings.processor import Processor, shares


class TopA(Processor):
    """Top-a: keeps classes of at least a share of the largest probability squared.

    p_i ≥ a · (max p)². 0 keeps everything. Cost: O(n).

    Reference: the "top-a" rule of the KoboldAI and RWKV samplers, 2022.
    """

    name: Literal["top_a"] = "top_a"
    a: PerRow[Fraction]
    """The share (dimensionless)."""

    def kept(self, logits: Tensor, row: Row) -> Kept:
        given = shares(logits)
        # The largest probability is 1/Σ, so its square is taken off both sides.
        return gather(logits, given.masses * given.total >= row["a"])
