"""Normalized function values: sigmoid, softplus or square of each logit, divided by their sum."""

from typing import Literal

import torch
from torch import Tensor

from mappings.base import Mapping
from mappings.gibbs import Slope, gibbs
from mappings.parameters import PerRow, Positive, Row
from mappings.rows import exponential, maximum
from mappings.solution import Solution

TINY_SOFTPLUS = -37.0
"""Below this softplus(z) is e^z to the last digit of float64."""


class Normalized(Mapping):
    """Normalized function values: each class's share of the sum of a positive function.

    p_i = f(z_i)/Σ_j f(z_j), z = x/T, f one of sigmoid 1/(1 + e^−z), softplus log(1 + e^z) and
    square z². Not shift-invariant; square is not monotone, gives a zero logit 0, and has no
    answer for a row of zeros. Cost: O(n).
    """

    name: Literal["normalized"] = "normalized"
    temperature: PerRow[Positive] = 1.0
    """Divides the logits (dimensionless); above 0, since shifts matter."""
    function: Literal["sigmoid", "softplus", "square"] = "sigmoid"
    """The function whose values are normalized."""

    shift_invariant = False
    monotone = False
    undefined = "every unmasked logit is 0 and so is every square; choose another function"

    def undefined_rows(self, logits: Tensor, row: Row) -> Tensor | None:
        if self.function != "square":
            return None
        return ((logits == 0) | (logits == -torch.inf)).all(dim=-1)

    def solve(self, logits: Tensor, row: Row) -> Solution:
        values, temperature = logits.double(), row["temperature"]
        if self.function == "square":
            magnitudes = torch.where(values == -torch.inf, 0, values.abs())
            scores = 2 * (magnitudes / magnitudes.amax(dim=-1, keepdim=True)).log_()
            return gibbs(scores, Slope(2 / values))
        scaled = values / temperature
        # Logits far below 0 make every value tiny: take the common factor out of the row.
        shift = maximum(scaled).clamp(max=0)
        if self.function == "sigmoid":
            rest = torch.log1p(exponential(-scaled.abs()))
            scores = scaled.clamp(max=0) - shift - rest
            slope = ((-scaled).clamp(max=0) - rest).exp_()
        else:
            softplus = scaled.clamp(min=0) + torch.log1p(exponential(-scaled.abs()))
            tiny = scaled < TINY_SOFTPLUS
            scores = torch.where(tiny, scaled, softplus.log()) - shift
            slope = torch.where(tiny, 1.0, -torch.expm1(-softplus) / softplus)
        return gibbs(scores, Slope(slope / temperature))
