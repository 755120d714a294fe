"""Sparse softmax: softmax over the top-k, top-p classes, exact zeros elsewhere."""

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from mappings.base import Mapping
from mappings.compact import gather
from mappings.gibbs import Slope, gibbs, inverse
from mappings.parameters import Count, Fraction, PerRow, Row
from mappings.rows import exponential, maximum, row_sum, scaled
from mappings.selection import Ties, largest, nucleus
from mappings.solution import Solution


class SparseSoftmax(Mapping):
    """Sparse softmax: softmax over the top-k, then top-p classes, exact zeros elsewhere.

    p = softmax(z) over Ω, z = x/T: Ω is the k largest, then of these the shortest prefix by
    descending probability that leaves a tail of at most (1 − p)(1 + 1e-6). Order is by value,
    then by lower class id; ties "first" keeps exactly so many, "all" also what equals the last
    one kept. k ≥ n and p = 1 keep all; p = 0 keeps one. The normalizer is log Σ_Ω e^{z_j}.
    Cost: O(n log k); a whole row is sorted only when a nucleus is nearly the row.

    Reference: Fan, Lewis, Dauphin 2018, "Hierarchical Neural Story Generation" (top-k);
    Holtzman, Buys, Du, Forbes, Choi 2020, "The Curious Case of Neural Text Degeneration" (top-p).
    """

    name: Literal["sparse_softmax"] = "sparse_softmax"
    k: PerRow[Count] | None = None
    """Classes kept (a count); null keeps all."""
    p: PerRow[Fraction] | None = None
    """Mass kept of what k left (a probability); null keeps all."""
    ties: Ties = "first"
    """What happens to classes equal to the last one kept."""

    sparse = True

    def solve(self, logits: Tensor, row: Row) -> Solution:
        top, temperature = maximum(logits), row["temperature"]
        offset, slope = top.double() / temperature, Slope(inverse(temperature))
        if "k" not in row and "p" not in row:
            return gibbs(scaled(logits, top, temperature), slope, offset=offset)
        kept = gather(
            logits, largest(logits, row["k"], self.ties) if "k" in row else logits > -torch.inf
        )
        values, classes = kept.values, kept.classes
        if "p" in row:
            scores = scaled(values, top, temperature)
            narrowed = gather(values, nucleus(scores, row["p"], self.ties))
            listed = classes.gather(-1, narrowed.classes.clamp_min(0))
            values, classes = narrowed.values, torch.where(narrowed.classes < 0, -1, listed)
        scores = scaled(values, top, temperature)
        solution = gibbs(scores, slope, classes=classes, offset=offset)
        return replace(solution, potential=lambda: row_sum(exponential(scores)).log())
