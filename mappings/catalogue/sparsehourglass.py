"""Sparsehourglass: sparsemax scaled by the row's own sum."""

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from mappings.base import Mapping
from mappings.compact import candidates, spread
from mappings.gibbs import Slope
from mappings.jacobian import Jacobian
from mappings.parameters import PerRow, Positive, PositiveTemperature, Row
from mappings.rows import maximum, row_sum, scaled
from mappings.simplex import projection, projection_jacobian
from mappings.solution import Solution


class Sparsehourglass(Mapping):
    """Sparsehourglass: sparsemax of logits scaled by their own sum, between scale and shift.

    p = sparsemax(z · (1 + nq)/(|Σz| + nq)), z = x/T, n the unmasked classes. q → 0 is invariant
    to scale (sum normalization for positive logits), q → ∞ is sparsemax, invariant to shift.
    Equal logits get equal probabilities. Cost: O(n) to prune, then a few steps over the
    candidates.

    Reference: Laha, Chemmengath, Agrawal, Khapra, Sankaranarayanan, Ramaswamy 2018, "On
    Controllable Sparse Alternatives to Softmax".
    """

    name: Literal["sparsehourglass"] = "sparsehourglass"
    temperature: PositiveTemperature = 1.0
    q: PerRow[Positive] = 1.0
    """The weight of shift invariance against scale invariance (dimensionless)."""

    shift_invariant = False
    sparse = True

    def solve(self, logits: Tensor, row: Row) -> Solution:
        top = maximum(logits)
        masked = logits == -torch.inf
        values = torch.where(masked, 0, logits).double()
        total = row_sum(values)
        weight = (~masked).sum(dim=-1, keepdim=True) * row["q"]
        # (x − max x)/width is the difference of the scaled z; T is in it already.
        # Written so that neither a large nor a small weight overflows.
        share = torch.where(weight > 1, 1 / (1 + 1 / weight), weight / (1 + weight))
        width = total.abs() / (1 + weight) + share * row["temperature"]
        kept = candidates(logits, width)
        solution = projection(scaled(kept.values, top, width), Slope(1 / width), kept.classes)

        def jacobian() -> Jacobian:
            # The width moves with every unmasked logit, so all classes have columns.
            inside = spread(solution.probabilities > 0, kept.classes, logits.shape[-1], False)
            moving = torch.where(masked, 0, -total.sign() / (width * width * (1 + weight)))
            return projection_jacobian(inside, Slope(1 / width, values - top, moving), None)

        return replace(solution, jacobian=jacobian)
