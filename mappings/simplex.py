"""The Euclidean projection onto the simplex, p_i = [1 + y_i − s]₊, and its derivatives.

y are scores whose largest is 0; s is found by Michelot's steps of 1986: the mean of what is still
inside gives a threshold, which puts more outside, until nothing changes.
"""

import torch
from torch import Tensor

from mappings import kernels
from mappings.compact import Kept, above, peaks
from mappings.gibbs import Slope
from mappings.jacobian import Jacobian, zero_where
from mappings.rows import maximum, row_sum, scaled
from mappings.solution import Solution

MANY = 1 << 10
"""Candidates above which a look for a lower bound pays (a count)."""

SLACK = 1e-12
"""How far the bound may be off by rounding (in units of z = x/T)."""

STEPS = 200
"""A bound that no row reaches (a count): each step puts a class outside, and few are needed."""


def simplex_threshold(scores: Tensor) -> Tensor:
    """The s with Σ [1 + y − s]₊ = 1, (rows, 1): the Euclidean projection onto the simplex.

    Args:
        scores: (rows, kept) float64, the largest of each row 0, −inf where padded.
    """
    if kernels.available(scores.device):
        return kernels.simplex_threshold(scores, STEPS)
    raised = 1 + scores
    threshold = torch.zeros_like(scores[:, :1])
    for _ in range(STEPS):
        inside = raised > threshold
        count = inside.sum(dim=-1, keepdim=True).double()
        total = row_sum(torch.where(inside, raised, 0))
        following = (total - 1) / count
        climbs = following > threshold
        if not bool(climbs.any()):
            break
        threshold = torch.where(climbs, following, threshold)
    return threshold


def tightened(kept: Kept, temperature: Tensor) -> Kept:
    """Fewer candidates of the rows that have many: those above a lower bound of the threshold.

    The maxima of blocks alone hold less than all, so their threshold lies below that of all, and
    so does a step towards theirs.
    """
    values = kept.values
    if values.shape[-1] <= MANY:
        return kept
    many = (values > -torch.inf).sum(dim=-1, keepdim=True) > MANY
    if not bool(many.any()):
        return kept
    heights = peaks(values)
    top = maximum(heights)
    raised = (1 + scaled(heights, top, temperature)).clamp_(min=0)
    step = (row_sum(raised) - 1) / (raised > 0).sum(dim=-1, keepdim=True)
    floor = (top.double() - (1 - step + SLACK) * temperature).to(values.dtype)
    floor = torch.nextafter(floor, torch.full_like(floor, -torch.inf))
    return kept.among(above(values, heights, torch.where(many, floor, -torch.inf)))


def projection(
    scores: Tensor, slope: Slope, classes: Tensor | None = None, offset: Tensor | None = None
) -> Solution:
    """The solution p = [1 + y − s]₊ of kept classes; with `offset` its threshold τ as normalizer.

    Args:
        scores: (rows, kept) float64, the largest of each row 0, −inf where padded.
        slope: the scores' derivative by the logits.
        classes: (rows, kept) class ids, or None for all in order.
        offset: (rows, 1) the largest z, subtracted from the scores.
    """
    shift = simplex_threshold(scores)
    probabilities = (1 + scores - shift).clamp_(min=0)
    return Solution(
        probabilities=probabilities,
        log_probabilities=lambda: torch.log1p((scores - shift).clamp(min=-1)),
        jacobian=lambda: projection_jacobian(probabilities > 0, slope, classes),
        classes=classes,
        normalizer=None if offset is None else (offset - 1 + shift).squeeze(-1),
    )


def projection_jacobian(inside: Tensor, slope: Slope, classes: Tensor | None) -> Jacobian:
    """The Jacobian (I − 11ᵀ/|S|)·∂score/∂x of the projection with support S.

    Args:
        inside: (rows, kept) whether a class is in the support.
        slope: the scores' derivative by the logits.
        classes: (rows, kept) class ids, or None for all in order.
    """
    size = inside.sum(dim=-1, keepdim=True).double()
    diagonal = torch.where(inside, slope.own, 0)
    left, right = [inside / size], [diagonal]
    if slope.shared is not None and slope.moving is not None:
        shared = torch.where(inside, slope.shared, 0)
        left.append(torch.where(inside, row_sum(shared) / size - shared, 0))
        right.append(slope.moving)
    jacobian = Jacobian(diagonal, torch.stack(left, 1), torch.stack(right, 1), classes)
    return zero_where(size == 1, jacobian)
