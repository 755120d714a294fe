"""Softmax: every class gets a share that grows exponentially with its logit."""

from typing import Literal

from torch import Tensor

from mappings.base import Mapping
from mappings.boltzmann import boltzmann
from mappings.parameters import Row
from mappings.solution import Solution


class Softmax(Mapping):
    """Softmax: every class gets a share that grows exponentially with its logit.

    p_i = e^{z_i} / Σ_j e^{z_j} with z = x/T. The normalizer is log Σ_j e^{z_j}. Log-probabilities
    stay finite where the probability underflows. T → 0 shares the mass among the maxima,
    T → ∞ is uniform. Cost: O(n).

    Reference: Boltzmann 1868; Bridle 1990, "Probabilistic Interpretation of Feedforward
    Classification Network Outputs".
    """

    name: Literal["softmax"] = "softmax"

    masses_at_once = 1 << 22

    def solve(self, logits: Tensor, row: Row) -> Solution:
        return boltzmann(logits, row["temperature"])
