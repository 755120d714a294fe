"""Perturb-and-max: the chance that a class has the largest logit once noise is added."""

from typing import Literal

from torch import Tensor

from mappings.base import Mapping
from mappings.errors import OutputTooLarge
from mappings.gibbs import Slope, gibbs, inverse
from mappings.jacobian import Jacobian
from mappings.parameters import Row
from mappings.rows import exponential, maximum, scaled
from mappings.solution import Solution
from mappings.uniform_winner import uniform_factor, uniform_log_wins
from mappings.winner import (
    NODES,
    NOISES,
    Levels,
    exponential_levels,
    factor,
    line_levels,
    log_wins,
    win_jacobian,
)

FACTOR_NUMBERS = 1 << 28
"""The largest factor of a Jacobian that is made (numbers)."""


class PerturbMax(Mapping):
    """Perturb-and-max: the chance that a class has the largest logit once noise is added.

    p_i = P[argmax_j (z_j + ε_j) = i], z = x/T, ε independent: "normal" (standard; the
    multinomial probit), "gumbel" (standard; softmax, in closed form), "logistic" (standard),
    "uniform" (on [0, 1]; a class 1 or more below the maximum gets zero) or "exponential"
    (rate 1). Equal logits get equal probabilities; T → 0 shares the mass among the maxima.
    Absolute error 1e-10. Cost: O(n · 128).

    Reference: Hazan and Jaakkola 2012, "On the Partition Function and Random Maximum A-Posteriori
    Perturbations"; Thurstone 1927 for the normal case.
    """

    name: Literal["perturb_max"] = "perturb_max"
    noise: Literal["normal", "gumbel", "logistic", "uniform", "exponential"] = "normal"
    """The distribution of the noise added to each z."""

    sparse = True
    elements_at_once = 1 << 12

    def solve(self, logits: Tensor, row: Row) -> Solution:
        pace = inverse(row["temperature"])
        scores = scaled(logits, maximum(logits), row["temperature"])
        if self.noise == "gumbel":
            return gibbs(scores, Slope(pace))
        logs = self._log_wins(scores)

        def jacobian() -> Jacobian:
            return win_jacobian(self._factor(scores), pace)

        return Solution(
            probabilities=exponential(logs), log_probabilities=lambda: logs, jacobian=jacobian
        )

    def _levels(self, scores: Tensor) -> Levels:
        if self.noise == "exponential":
            return exponential_levels(scores)
        return line_levels(scores, NOISES[self.noise])

    def _log_wins(self, scores: Tensor) -> Tensor:
        if self.noise == "uniform":
            return uniform_log_wins(scores)
        return log_wins(scores, self._levels(scores))

    def _factor(self, scores: Tensor) -> Tensor:
        if scores.numel() * NODES > FACTOR_NUMBERS:
            raise OutputTooLarge.derivatives(scores.numel() * NODES, FACTOR_NUMBERS)
        if self.noise == "uniform":
            return uniform_factor(scores)
        return factor(scores, self._levels(scores))
