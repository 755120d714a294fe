"""Entmax: from softmax over sparsemax to argmax, by one parameter."""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from mappings.base import Mapping, PerRow, Row
from mappings.rows import maximum, scaled
from mappings.solution import Solution
from mappings.threshold import candidates, entmax_roots

SOFTMAX_WIDTH = 1e-6 * (1 + 1e-9)
"""|α − 1| up to which entmax is softmax (dimensionless)."""

LIMIT = 1e-100
"""Stands for β = 0: log1p(βd)/β is then d to the last digit."""


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

    def solve(self, logits: Tensor, row: Row) -> Solution:
        temperature = row["temperature"]
        beta = row["alpha"] - 1
        beta = torch.where(beta.abs() <= SOFTMAX_WIDTH, LIMIT, beta)
        top = maximum(logits)
        reach = torch.where(beta > LIMIT, temperature / beta, torch.inf)
        kept = candidates(logits, top, reach)
        roots = entmax_roots(scaled(kept.values, top, temperature), beta)
        peak = top.double() / temperature
        normalizer = torch.where(beta == LIMIT, peak + roots.shift, beta * (peak + roots.shift) - 1)
        return Solution(
            roots.probabilities,
            lambda: roots.log_probabilities,
            kept.classes,
            normalizer.squeeze(-1),
        )
