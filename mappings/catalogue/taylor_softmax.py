"""Taylor softmax: the exponential replaced by its even Taylor polynomial."""

from math import factorial
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from mappings.base import Mapping
from mappings.gibbs import Slope, gibbs
from mappings.parameters import PositiveTemperature, Row
from mappings.solution import Solution


class TaylorSoftmax(Mapping):
    """Taylor softmax: the exponential replaced by its even Taylor polynomial, with fatter tails.

    p_i = f(z_i)/Σ_j f(z_j), f(z) = Σ_{j ≤ order} z^j/j!, z = x/T; f > 0 everywhere since the
    order is even. Not shift-invariant, and for negative logits not monotone. T → ∞ is uniform.
    Cost: O(n · order).

    Reference: de Brébisson and Vincent 2016, "An Exploration of Softmax Alternatives Belonging
    to the Spherical Loss Family".
    """

    name: Literal["taylor_softmax"] = "taylor_softmax"
    temperature: PositiveTemperature = 1.0
    order: Annotated[int, Field(ge=2, le=16, multiple_of=2)] = 2
    """The polynomial's degree (a count, even)."""

    shift_invariant = False
    monotone = False

    def solve(self, logits: Tensor, row: Row) -> Solution:
        values = logits.double()
        masked = values == -torch.inf
        # f(z)·(T/w)^order as a form in x/w and T/w, both within [−1, 1]: nothing overflows.
        size = torch.where(masked, 0, values.abs()).amax(dim=-1, keepdim=True)
        width = torch.maximum(size, row["temperature"])
        ratio, unit = values / width, row["temperature"] / width
        form = _form(ratio, unit, self.order)
        # f′ is the same form of one degree less; dividing by the width divides by T as well.
        slope = _form(ratio, unit, self.order - 1) / (form * width)
        return gibbs(
            torch.where(masked, -torch.inf, form.log()), Slope(torch.where(masked, 0, slope))
        )


def _form(ratio: Tensor, unit: Tensor, degree: int) -> Tensor:
    """Σ_j ratio^j · unit^(degree − j)/j!, by Horner's rule."""
    form = torch.full_like(ratio, 1 / factorial(degree))
    power = torch.ones_like(unit)
    for lower in range(degree - 1, -1, -1):
        power = power * unit
        form = form.mul_(ratio).add_(power / factorial(lower))
    return form
