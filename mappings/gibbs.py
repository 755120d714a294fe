"""Normalized exponentials: softmax of any scores, with log-probabilities exact near 1."""

import torch
from torch import Tensor

from mappings.rows import row_sum
from mappings.solution import Solution


def gibbs(scores: Tensor, classes: Tensor | None = None, offset: Tensor | None = None) -> Solution:
    """Distributions in proportion to e^score.

    Args:
        scores: (rows, kept) float64, −inf for probability 0; every row has a finite one.
        classes: (rows, kept) class ids, or None for all classes in order.
        offset: (rows, 1) what was subtracted from the scores; with it the normalizer
            log Σ e^(score + offset) is returned.
    """
    top = scores.amax(dim=-1, keepdim=True)
    exponentials = (scores - top).exp_()
    total = row_sum(exponentials)

    def log_probabilities() -> Tensor:
        # Near p = 1 only log1p of what is not the largest class keeps the digits of log p.
        rest = exponentials.scatter(-1, scores.argmax(dim=-1, keepdim=True), 0.0)
        return (scores - top).sub_(torch.log1p(row_sum(rest)))

    normalizer = None if offset is None else (offset + (top + total.log())).squeeze(-1)
    return Solution(exponentials / total, log_probabilities, classes, normalizer)
