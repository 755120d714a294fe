"""Perturb-and-max: the chance that a class has the largest logit once noise is added."""

from typing import Literal

import torch
from torch import Tensor

from mappings.base import Mapping
from mappings.gibbs import Slope, gibbs, inverse
from mappings.jacobian import Jacobian, zero_where
from mappings.parameters import Row
from mappings.rows import exponential, maximum, scaled
from mappings.solution import Solution
from mappings.uniform_winner import uniform_factor, uniform_log_wins
from mappings.winner import (
    NOISES,
    exponential_levels,
    factor,
    line_levels,
    log_pullback,
    log_wins,
    win_jacobian,
)


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
            return self._uniform(scores, pace)
        if self.noise == "exponential":
            levels = exponential_levels(scores)
        else:
            levels = line_levels(scores, NOISES[self.noise])
        logs = log_wins(scores, levels)
        return Solution(
            probabilities=exponential(logs),
            log_probabilities=lambda: logs,
            jacobian=lambda: _unless_alone(logs, win_jacobian(factor(scores, levels), pace, None)),
            log_pullback=lambda weights: log_pullback(scores, logs, levels, weights) * pace,
        )

    def _uniform(self, scores: Tensor, pace: Tensor) -> Solution:
        logs = uniform_log_wins(scores)

        def jacobian() -> Jacobian:
            between, classes = uniform_factor(scores)
            return _unless_alone(logs, win_jacobian(between, pace, classes))

        return Solution(
            probabilities=exponential(logs), log_probabilities=lambda: logs, jacobian=jacobian
        )


def _unless_alone(logs: Tensor, jacobian: Jacobian) -> Jacobian:
    """No derivatives in rows where one class has it all."""
    return zero_where((logs > -torch.inf).sum(dim=-1, keepdim=True) == 1, jacobian)
