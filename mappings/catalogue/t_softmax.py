"""t-softmax: softmax whose classes further than t below the maximum are cut off."""

from typing import Literal

from torch import Tensor

from mappings.base import Mapping
from mappings.gibbs import Slope, gibbs, inverse
from mappings.parameters import PerRow, Positive, Row
from mappings.rows import logarithm, maximum, row_sum, scaled
from mappings.solution import Solution


class TSoftmax(Mapping):
    """t-softmax: softmax whose classes further than t below the maximum get exactly zero.

    p_i = w_i e^{z_i}/Σ_j w_j e^{z_j} with w_i = [z_i + t − max z]₊, z = x/T: continuous at the
    cut. t → 0 shares the mass among the maxima, t → ∞ is softmax. Equal logits get equal
    probabilities. Cost: O(n).

    Reference: Bałazy, Struski, Śmieja, Tabor 2023, "r-softmax: Generalized Softmax with
    Controllable Sparsity Rate".
    """

    name: Literal["t_softmax"] = "t_softmax"
    t: PerRow[Positive] = 1.0
    """How far below the maximum a class keeps weight (in units of z = x/T)."""

    sparse = True

    def solve(self, logits: Tensor, row: Row) -> Solution:
        top, pace = maximum(logits), inverse(row["temperature"])
        scores = scaled(logits, top, row["temperature"])
        weights = (scores + row["t"]).clamp_(min=0)
        # The cut moves with the maximum, shared among equal maxima.
        peaks = (logits == top).double()
        moving = pace * peaks / row_sum(peaks)
        slope = Slope((1 + 1 / weights) * pace, shared=-1 / weights, moving=moving)
        return gibbs(logarithm(weights) + scores, slope)
