"""Weighted softmax: softmax with a prior weight on every class."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from mappings.base import Mapping
from mappings.class_weights import ClassWeights
from mappings.errors import InvalidParameter
from mappings.gibbs import Slope, gibbs, inverse
from mappings.parameters import Row
from mappings.rows import logarithm, maximum, scaled
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

    by_class = True
    monotone = False
    sparse = True
    undefined = "the weight of every unmasked class is 0; give one of them a positive weight"

    def check_classes(self, classes: Sequence[int]) -> None:
        given = (torch.atleast_2d(self.weights) >= 0).sum(-1).tolist()
        for index, width in enumerate(classes):
            weights = given[index] if len(given) > 1 else given[0]
            if weights != width:
                message = f"row {index} has {weights} weights for {width} classes; give one a class"
                raise InvalidParameter.at(("weights",), message)

    def undefined_rows(self, logits: Tensor, row: Row) -> Tensor | None:
        return ~((self._weights(logits, row) > 0) & (logits > -torch.inf)).any(dim=-1)

    def solve(self, logits: Tensor, row: Row) -> Solution:
        weights = self._weights(logits, row)
        weighed = torch.where(weights > 0, logits, -torch.inf)
        top, temperature = maximum(weighed), row["temperature"]
        scores, pace = scaled(weighed, top, temperature), inverse(temperature)
        return gibbs(
            scores + logarithm(weights),
            Slope(pace),
            offset=top.double() / temperature,
            drift=-scores * pace,
        )

    @staticmethod
    def _weights(logits: Tensor, row: Row) -> Tensor:
        """Weights as wide as the logits: shorter rows have no weight where they have no class."""
        weights = row["weights"].clamp_min(0)
        return pad(weights, (0, logits.shape[-1] - weights.shape[-1]))
