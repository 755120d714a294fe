"""Entmax: from softmax over sparsemax to argmax, by one parameter."""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from mappings.base import Mapping
from mappings.compact import Kept, candidates
from mappings.entmax_roots import SOFTMAX_LIMIT, entmax_roots, tsallis_potential
from mappings.gibbs import inverse
from mappings.jacobian import Jacobian, without_cancellation
from mappings.parameters import PerRow, Row
from mappings.rows import maximum, row_sum, scaled
from mappings.solution import Solution

SOFTMAX_WIDTH = 1e-6 * (1 + 1e-9)
"""|α − 1| up to which entmax is softmax (dimensionless)."""


class Entmax(Mapping):
    """Entmax: sparse probabilities, from softmax over sparsemax to argmax, by one parameter.

    p_i = [(α − 1) z_i − λ]₊^{1/(α − 1)} with z = x/T and λ such that Σp = 1. The normalizer is
    λ, at α = 1 log Σ e^{z_j}. α = 1 (and |α − 1| ≤ 1e-6) is softmax, 1.5 the usual choice, 2
    sparsemax; α → ∞ tends to argmax. α < 1 is the heavy-tailed side, with full support. Equal
    logits get equal probabilities. Cost: O(n) to prune, then Newton steps over the candidates.

    Reference: Peters, Niculae, Martins 2019, "Sparse Sequence-to-Sequence Models".
    """

    name: Literal["entmax"] = "entmax"
    alpha: PerRow[Annotated[float, Field(ge=0.1, le=16)]] = 1.5
    """The Tsallis index (dimensionless): 1 is softmax, 2 sparsemax, below 1 heavy-tailed."""

    sparse = True

    def candidates(self, logits: Tensor, row: Row) -> Kept:
        beta = _beta(row)
        reach = torch.where(beta > SOFTMAX_LIMIT, row["temperature"] / beta, torch.inf)
        return candidates(logits, reach)

    def solve(self, logits: Tensor, row: Row) -> Solution:
        temperature, beta, top = row["temperature"], _beta(row), maximum(logits)
        scores = scaled(logits, top, temperature)
        roots = entmax_roots(scores, beta)
        peak = top.double() / temperature
        level = peak + roots.shift
        normalizer = torch.where(beta == SOFTMAX_LIMIT, level, beta * level - 1)
        masses, logs = roots.probabilities, roots.log_probabilities

        def weights() -> Tensor:
            return torch.where(masses > 0, ((1 - beta) * logs).exp(), 0)

        def jacobian() -> Jacobian:
            return without_cancellation(weights(), inverse(temperature), None)

        def by_alpha() -> Tensor:
            slopes = weights()
            moves = torch.where(masses > 0, -masses * logs.square() * _curvature(beta * logs), 0)
            # What the largest weight's class gains is what the others lose.
            place = slopes.argmax(dim=-1, keepdim=True)
            gains = moves - slopes / row_sum(slopes) * row_sum(moves)
            others = gains.scatter(-1, place, 0.0)
            return others.scatter(-1, place, -row_sum(others))

        return Solution(
            probabilities=masses,
            log_probabilities=lambda: logs,
            jacobian=jacobian,
            normalizer=normalizer.squeeze(-1),
            potential=lambda: tsallis_potential(masses, logs, scores, beta),
            gradients={"alpha": by_alpha},
        )


def _beta(row: Row) -> Tensor:
    """Computes α − 1, (rows, 1); `SOFTMAX_LIMIT` where that is as good as 0."""
    beta = row["alpha"] - 1
    return torch.where(beta.abs() <= SOFTMAX_WIDTH, SOFTMAX_LIMIT, beta)


def _curvature(x: Tensor) -> Tensor:
    """(e^−x − 1 + x)/x², ½ at 0: ∂ log p/∂α = −(log p)² · this of β log p, at a fixed threshold."""
    series = 1 / 2 - x * (1 / 6 - x * (1 / 24 - x * (1 / 120 - x * (1 / 720 - x / 5040))))
    return torch.where(x.abs() < 1e-2, series, (torch.expm1(-x) + x) / (x * x))
