"""Spherical softmax: probabilities in proportion to squared logits."""

from typing import Literal

import torch
from torch import Tensor

from mappings.base import Mapping
from mappings.gibbs import Slope, gibbs
from mappings.parameters import NonNegative, PerRow, PositiveTemperature, Row
from mappings.solution import Solution


class SphericalSoftmax(Mapping):
    """Spherical softmax: probabilities in proportion to squared logits.

    p_i = (z_i² + ε)/Σ_j (z_j² + ε), z = x/T. Signs do not matter, so it is not monotone. With
    ε = 0 the temperature cancels, a zero logit gets 0 and a row of zeros has no answer;
    ε → ∞ is uniform. Cost: O(n).

    Reference: de Brébisson and Vincent 2016, "An Exploration of Softmax Alternatives Belonging
    to the Spherical Loss Family".
    """

    name: Literal["spherical_softmax"] = "spherical_softmax"
    temperature: PositiveTemperature = 1.0
    epsilon: PerRow[NonNegative] = 0.0
    """Added to every square (dimensionless)."""

    shift_invariant = False
    monotone = False
    undefined = "every unmasked logit is 0 and epsilon is 0; give epsilon > 0"

    def undefined_rows(self, logits: Tensor, row: Row) -> Tensor | None:
        zero = ((logits == 0) | (logits == -torch.inf)).all(dim=-1, keepdim=True)
        return (zero & (row["epsilon"] == 0)).squeeze(-1)

    def solve(self, logits: Tensor, row: Row) -> Solution:
        values = logits.double()
        masked = values == -torch.inf
        floor = row["epsilon"].sqrt() * row["temperature"]
        size = torch.where(masked, 0, values.abs()).amax(dim=-1, keepdim=True)
        # Scaled by the larger of both, so that neither square overflows.
        width = torch.maximum(size, floor)
        share = torch.where(floor >= size, 1.0, floor / size)
        ratio = torch.where(masked, 0, values / width)
        squares = ratio.square().add_(share.square())
        slope = Slope(2 * ratio / (squares * width))
        return gibbs(torch.where(masked, -torch.inf, squares.log()), slope)
