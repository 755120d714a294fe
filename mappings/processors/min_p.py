"""Min-p: keeps classes whose probability is at least a share of the largest."""

from typing import Literal

from torch import Tensor

from mappings.parameters import Fraction, PerRow, Row
from mappings.processor import Processor, masked, shares


class MinP(Processor):
    """Min-p: keeps classes whose probability is at least a share of the largest.

    p_i ≥ ratio · max p. 0 keeps everything, 1 the maxima. Cost: O(n).

    Reference: Nguyen, Baker, Neo, Roush, Kirsch, Shwartz-Ziv 2024, "Turning Up the Heat: Min-p
    Sampling for Creative and Coherent LLM Outputs".
    """

    name: Literal["min_p"] = "min_p"
    ratio: PerRow[Fraction]
    """The share of the largest probability (dimensionless)."""

    def apply(self, logits: Tensor, row: Row) -> Tensor:
        return masked(logits, shares(logits).masses >= row["ratio"])
