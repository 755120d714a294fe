"""Min-p: keeps classes whose probability is at least a share of the largest."""

from typing import Literal

from torch import Tensor

from mappings.compact import Kept, candidates
from mappings.parameters import Fraction, PerRow, Row
from mappings.processor import LIGHT, Processor, shares

SLACK = 1e-12
"""How much deeper is looked, so that rounding loses no class (in nats)."""


class MinP(Processor):
    """Min-p: keeps classes whose probability is at least a share of the largest.

    p_i ≥ ratio · max p. 0 keeps everything, 1 the maxima. Cost: O(n).

    Reference: Nguyen, Baker, Neo, Roush, Kirsch, Shwartz-Ziv 2024, "Turning Up the Heat: Min-p
    Sampling for Creative and Coherent LLM Outputs".
    """

    name: Literal["min_p"] = "min_p"
    ratio: PerRow[Fraction]
    """The share of the largest probability (dimensionless)."""

    elements_at_once = LIGHT

    def kept(self, logits: Tensor, row: Row) -> Kept:
        near = candidates(logits, SLACK - row["ratio"].log())
        return near.only(shares(near.values).masses >= row["ratio"])
