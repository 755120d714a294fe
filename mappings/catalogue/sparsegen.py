"""Sparsegen: sparsemax of transformed logits, with a dial for sparsity."""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from mappings.base import Mapping
from mappings.compact import Kept, along, candidates, gather
from mappings.gibbs import Slope
from mappings.parameters import PerRow, PositiveTemperature, Row
from mappings.rows import maximum, scaled
from mappings.simplex import projection
from mappings.solution import Solution


class Sparsegen(Mapping):
    """Sparsegen: sparsemax of transformed logits, with a dial for sparsity.

    p = sparsemax(g(z)/(1 − λ)), z = x/T, g(z) one of z, e^z and z². λ = 0 with g linear is
    sparsemax, λ → 1 tends to argmax of g, λ → −∞ is uniform. Equal logits get equal
    probabilities. With g linear it is shift-invariant, with g square it is not monotone.
    Cost: O(n) to prune, then a few steps over the candidates.

    Reference: Laha, Chemmengath, Agrawal, Khapra, Sankaranarayanan, Ramaswamy 2018, "On
    Controllable Sparse Alternatives to Softmax".
    """

    name: Literal["sparsegen"] = "sparsegen"
    temperature: PositiveTemperature = 1.0
    g: Literal["linear", "exp", "square"] = "linear"
    """What is done to each z before the projection."""
    lam: PerRow[Annotated[float, Field(lt=1)]] = 0.0
    """λ, the strength of sparsity (dimensionless), below 1."""

    shift_invariant = False
    monotone = False
    sparse = True

    def candidates(self, logits: Tensor, row: Row) -> Kept | None:
        if self.g == "linear":
            return candidates(logits, row["temperature"] * (1 - row["lam"]))
        return None

    def solve(self, logits: Tensor, row: Row) -> Solution:
        temperature, room = row["temperature"], 1 - row["lam"]
        if self.g == "linear":
            scores = scaled(logits, maximum(logits), temperature) / room
            return projection(scores, Slope(1 / (temperature * room)))
        scores = self._differences(logits, temperature) / room
        kept = gather(scores, scores > -1)
        z = along(logits, kept.classes).double() / temperature
        steepness = z.exp() if self.g == "exp" else 2 * z
        return projection(kept.values, Slope(steepness / (temperature * room)), kept.classes)

    def _differences(self, logits: Tensor, temperature: Tensor) -> Tensor:
        """g(z_i) − max g(z), as products of differences: no cancellation, no ∞ − ∞."""
        if self.g == "exp":
            below = scaled(logits, maximum(logits), temperature)
            differences = (maximum(logits).double() / temperature).exp() * torch.expm1(below)
        else:
            sizes = torch.where(logits == -torch.inf, 0, logits.abs()).double()
            peak = maximum(sizes)
            below = scaled(sizes, peak, temperature)
            differences = below * ((sizes + peak) / temperature)
        differences = torch.where(below == 0, 0, differences)
        return torch.where(logits == -torch.inf, -torch.inf, differences)
