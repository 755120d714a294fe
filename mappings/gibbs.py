"""Normalized exponentials: softmax of any scores, with log-probabilities exact near 1."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from mappings.jacobian import Jacobian, zero_where
from mappings.rows import exponential, row_sum
from mappings.solution import Solution


@dataclass(frozen=True, slots=True)
class Slope:
    """How the scores move with the logits: ∂score/∂x = diag(s) + a bᵀ.

    Attributes:
        own: s, (rows, 1 or kept); may be infinite where the probability is 0.
        shared: a, (rows, kept): how every score moves with a quantity of the whole row.
        moving: b, (rows, kept): how that quantity moves with the logits.
    """

    own: Tensor
    shared: Tensor | None = None
    moving: Tensor | None = None


def inverse(temperature: Tensor) -> Tensor:
    """1/T, and 0 at T = 0, where the limit is piecewise constant."""
    return torch.where(temperature == 0, 0, 1 / temperature)


def gibbs(
    scores: Tensor,
    slope: Slope,
    *,
    classes: Tensor | None = None,
    offset: Tensor | None = None,
    drift: Tensor | None = None,
) -> Solution:
    """Distributions in proportion to e^score.

    Args:
        scores: (rows, kept) float64, −inf for probability 0; every row has a finite one.
        slope: the scores' derivative by the logits.
        classes: (rows, kept) class ids, or None for all classes in order.
        offset: (rows, 1) what was subtracted from the scores; with it the normalizer
            log Σ e^(score + offset) is returned.
        drift: (rows, kept) ∂score/∂T, where it is not −x · ∂score/∂x / T.
    """
    top = scores.amax(dim=-1, keepdim=True)
    exponentials = exponential(scores - top)
    total = row_sum(exponentials)
    probabilities = exponentials / total
    normalizer = None if offset is None else (offset + (top + total.log())).squeeze(-1)

    def log_probabilities() -> Tensor:
        # Near p = 1 only log1p of what is not the largest class keeps the digits of log p.
        rest = exponentials.scatter(-1, scores.argmax(dim=-1, keepdim=True), 0.0)
        return (scores - top).sub_(torch.log1p(row_sum(rest)))

    def flow() -> Tensor:
        return torch.where(probabilities > 0, probabilities * slope.own, 0)

    def jacobian() -> Jacobian:
        diagonal = flow()
        left, right = [probabilities], [diagonal]
        if slope.shared is not None and slope.moving is not None:
            shares = torch.where(probabilities > 0, probabilities * slope.shared, 0)
            left.append(probabilities * row_sum(shares) - shares)
            right.append(slope.moving)
        jacobian = Jacobian(diagonal, torch.stack(left, 1), torch.stack(right, 1), classes)
        # A class that has it all keeps it, however steep its score.
        alone = (probabilities > 0).sum(dim=-1, keepdim=True) == 1
        return zero_where(alone, jacobian)

    def log_pullback(weights: Tensor) -> Tensor:
        excess = weights - probabilities * row_sum(weights)
        pulled = torch.where(excess != 0, excess * slope.own, 0)
        if slope.shared is not None and slope.moving is not None:
            shared = torch.where(excess != 0, excess * slope.shared, 0)
            pulled = pulled + slope.moving * row_sum(shared)
        return pulled

    gradients: dict[str, Callable[[], Tensor]] = {}
    if drift is not None:
        gradients["temperature"] = partial(_drifting, probabilities, drift)
    return Solution(
        probabilities=probabilities,
        log_probabilities=log_probabilities,
        jacobian=jacobian,
        classes=classes,
        normalizer=normalizer,
        log_pullback=log_pullback,
        gradients=gradients,
    )


def _drifting(probabilities: Tensor, drift: Tensor) -> Tensor:
    """How the probabilities move when the scores do, (rows, kept)."""
    moves = torch.where(probabilities > 0, probabilities * drift, 0)
    return moves - probabilities * row_sum(moves)
