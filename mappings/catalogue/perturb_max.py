"""Perturb-and-max: the chance that a class has the largest logit once noise is added."""

from functools import partial
from typing import Literal

import torch
from torch import Tensor

from mappings.base import Mapping
from mappings.errors import OutputTooLarge
from mappings.gibbs import Slope, gibbs, inverse
from mappings.jacobian import Jacobian, zero_where
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
    log_pullback,
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
    Absolute error 1e-10; a log-probability is as good as that lets it be. Cost: O(n · 128).

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
        if self.noise == "uniform":
            logs, factors = uniform_log_wins(scores), partial(uniform_factor, scores)
            pullback = None
        else:
            levels = self._levels(scores)
            logs, factors = log_wins(scores, levels), partial(factor, scores, levels)
            pullback = partial(log_pullback, scores, logs, levels)

        def within_memory() -> None:
            numbers = scores.numel() * NODES
            if numbers > FACTOR_NUMBERS:
                raise OutputTooLarge.derivatives(numbers, FACTOR_NUMBERS)

        def jacobian() -> Jacobian:
            within_memory()
            alone = (logs > -torch.inf).sum(dim=-1, keepdim=True) == 1
            return zero_where(alone, win_jacobian(factors(), pace))

        def pulled(weights: Tensor) -> Tensor:
            within_memory()
            assert pullback is not None
            return pullback(weights) * pace

        return Solution(
            probabilities=exponential(logs),
            log_probabilities=lambda: logs,
            jacobian=jacobian,
            log_pullback=None if pullback is None else pulled,
        )

    def _levels(self, scores: Tensor) -> Levels:
        if self.noise == "exponential":
            return exponential_levels(scores)
        return line_levels(scores, NOISES[self.noise])
