"""Sparse softmax: softmax over the top-k, top-p classes, exact zeros elsewhere."""

from dataclasses import replace
from typing import Literal

from torch import Tensor

from mappings.base import Mapping
from mappings.boltzmann import boltzmann
from mappings.compact import Kept, unmasked, whole
from mappings.nucleus import nucleus
from mappings.parameters import Count, Fraction, PerRow, Row
from mappings.rows import exponential, maximum, row_sum, scaled
from mappings.selection import Ties, top_classes
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
    masses_at_once = 1 << 22

    def candidates(self, logits: Tensor, row: Row) -> Kept | None:
        if "k" not in row and "p" not in row:
            return unmasked(logits)
        kept = top_classes(logits, row["k"], self.ties) if "k" in row else whole(logits)
        if "p" in row:
            heaviest = nucleus(kept.values, row["temperature"], row["p"], self.ties)
            kept = kept.among(heaviest)
        return kept

    def solve(self, logits: Tensor, row: Row) -> Solution:
        solution = boltzmann(logits, row["temperature"])
        if "k" not in row and "p" not in row:
            return solution

        def potential() -> Tensor:
            scores = scaled(logits, maximum(logits), row["temperature"])
            return row_sum(exponential(scores)).log()

        return replace(solution, potential=potential)
