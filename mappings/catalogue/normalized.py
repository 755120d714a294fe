"""Normalized function values: sigmoid, softplus or square of each logit, divided by their sum."""

from typing import Literal

import torch
from torch import Tensor

from mappings.base import Mapping
from mappings.gibbs import Slope, gibbs
from mappings.parameters import PositiveTemperature, Row
from mappings.rows import exponential, maximum, scaled
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
    temperature: PositiveTemperature = 1.0
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
        z, top = values / temperature, maximum(logits)
        below = scaled(logits, top, temperature)
        rest = torch.log1p(exponential(-z.abs()))
        # In a row far below 0 every value is tiny: its common factor e^{max z} is left out.
        if self.function == "sigmoid":
            scores = torch.where(top <= 0, below, z.clamp(max=0)) - rest
            slope = ((-z).clamp(max=0) - rest).exp_()
        else:
            softplus = z.clamp(min=0) + rest
            tiny = z < TINY_SOFTPLUS
            # log softplus(z) − z, which is 0 where softplus(z) is e^z.
            excess = torch.where(tiny, 0, softplus.log() - z)
            scores = torch.where(top <= 0, below + excess, torch.where(tiny, z, softplus.log()))
            slope = torch.where(tiny, 1.0, -torch.expm1(-softplus) / softplus)
        scores = torch.where(values == -torch.inf, -torch.inf, scores)
        return gibbs(scores, Slope(slope / temperature))
