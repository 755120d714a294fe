"""Sparsemax: the nearest point of the simplex, with exact zeros."""

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from mappings.base import Mapping
from mappings.compact import Kept, candidates
from mappings.entmax_roots import tsallis_potential
from mappings.gibbs import Slope, inverse
from mappings.parameters import Row
from mappings.rows import maximum, scaled
from mappings.simplex import projection, tightened
from mappings.solution import Solution


class Sparsemax(Mapping):
    """Sparsemax: the nearest point of the simplex, with exact zeros.

    p_i = [z_i − τ]₊ with z = x/T and τ from Σp = 1: the Euclidean projection of z. The
    normalizer is τ. Equal logits get equal probabilities; a class 1 or more below the maximum
    (in z) gets zero. T → 0 shares the mass among the maxima, T → ∞ is uniform. Cost: O(n) to
    prune, then a few steps over the candidates.

    Reference: Martins and Astudillo 2016, "From Softmax to Sparsemax"; the steps are Michelot's
    of 1986.
    """

    name: Literal["sparsemax"] = "sparsemax"

    sparse = True

    def candidates(self, logits: Tensor, row: Row) -> Kept:
        kept = candidates(logits, row["temperature"])
        return tightened(kept, row["temperature"])

    def solve(self, logits: Tensor, row: Row) -> Solution:
        top, temperature = maximum(logits), row["temperature"]
        scores = scaled(logits, top, temperature)
        slope, offset = Slope(inverse(temperature)), top.double() / temperature
        solution = projection(scores, slope, offset=offset)

        def potential() -> Tensor:
            masses, logs = solution.probabilities, solution.log_probabilities()
            return tsallis_potential(masses, logs, scores, torch.ones_like(temperature))

        return replace(solution, potential=potential)
