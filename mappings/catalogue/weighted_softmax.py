"""Weighted softmax: softmax with a prior weight on every class."""

from typing import Literal

import torch
from torch import Tensor

from mappings.base import ClassWeights, Mapping, Row
from mappings.gibbs import gibbs
from mappings.rows import maximum, scaled
from mappings.solution import Solution


class WeightedSoftmax(Mapping):
    """Weighted softmax: softmax with a prior weight on every class.

    p_i = w_i e^{z_i}/Σ_j w_j e^{z_j}, z = x/T. Weight 0 removes a class; a row whose unmasked
    weights are all 0 has no answer. Equal weights are softmax. T → 0 shares the mass among the
    maxima of positive weight, in proportion to their weights. The normalizer is
    log Σ_j w_j e^{z_j}. Cost: O(n).

    Reference: Bałazy, Struski, Śmieja, Tabor 2023, "r-softmax: Generalized Softmax with
    Controllable Sparsity Rate".
    """

    name: Literal["weighted_softmax"] = "weighted_softmax"
    weights: ClassWeights
    """One weight a class (dimensionless, ≥ 0), for all rows or rows × classes."""

    monotone = False
    sparse = True
    undefined = "the weight of every unmasked class is 0; give one of them a positive weight"

    def undefined_rows(self, logits: Tensor, row: Row) -> Tensor | None:
        return ~((row["weights"] > 0) & (logits > -torch.inf)).any(dim=-1)

    def solve(self, logits: Tensor, row: Row) -> Solution:
        weights = row["weights"][..., : logits.shape[-1]]
        weighed = torch.where(weights > 0, logits, -torch.inf)
        top = maximum(weighed)
        scores = scaled(weighed, top, row["temperature"]) + weights.log()
        return gibbs(scores, offset=top.double() / row["temperature"])
