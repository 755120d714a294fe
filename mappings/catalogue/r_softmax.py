"""r-softmax: softmax that gives a chosen share of the classes exactly zero."""

from typing import Literal

import torch
from torch import Tensor

from mappings.base import Mapping
from mappings.gibbs import Slope, gibbs, inverse
from mappings.parameters import Fraction, PerRow, Row
from mappings.quantile import quantile
from mappings.rows import logarithm, maximum, scaled
from mappings.solution import Solution


class RSoftmax(Mapping):
    """r-softmax: softmax that gives a chosen share r of the classes exactly zero.

    t-softmax with t = max z − quantile(z, r), the quantile interpolated linearly over the n
    unmasked logits. r = k/n gives k zeros when values are distinct; r = 0 still zeroes the
    smallest (the paper's formula, kept). Where the quantile is the maximum itself (r = 1, ties
    at the top, equal logits) it is the limit: the maxima share the mass. Cost: O(n).

    Reference: Bałazy, Struski, Śmieja, Tabor 2023, "r-softmax: Generalized Softmax with
    Controllable Sparsity Rate".
    """

    name: Literal["r_softmax"] = "r_softmax"
    r: PerRow[Fraction] = 0.5
    """The share of unmasked classes to get zero (dimensionless)."""

    sparse = True

    def solve(self, logits: Tensor, row: Row) -> Solution:
        top, temperature = maximum(logits), row["temperature"]
        scores = scaled(logits, top, temperature)
        cut = quantile(logits, row["r"])
        # Weights in units of the logits: the temperature is a common factor of them all.
        weights = cut.above_it(logits)
        still = (cut.value >= top) | (temperature == 0)
        limit = torch.where(logits == top, 0.0, -torch.inf)
        slope = Slope(
            torch.where(still, 0, 1 / weights + inverse(temperature)),
            shared=torch.where(still, 0, -1 / weights),
            moving=cut.gradient(logits),
        )
        return gibbs(torch.where(still, limit, logarithm(weights) + scores), slope)
