"""Thresholds of the relu family: which classes can be in the support, and the exact solve.

Every member writes p_i = e_β(y_i − s) with y = (x − max x)/T, β = α − 1 and the q-exponential
e_β(d) = [1 + βd]₊^{1/β}: sparsemax is β = 1, entmax any β, softmax the limit β = 0. s is the one
root of Σ p = 1. This form has no cancellation for β near 0 and is the same for β < 0.

Reference: Peters, Niculae, Martins, "Sparse Sequence-to-Sequence Models", 2019, for the
mapping; the iterations below are Newton's method on the ℓ_{1/β} norm of the positive parts,
convex in s, so that it climbs to the root from the left without a safeguard.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from mappings.compact import Kept, gather
from mappings.gibbs import Slope
from mappings.jacobian import Jacobian, zero_where
from mappings.rows import exponential, row_sum
from mappings.solution import Solution

ITERATIONS = 200
"""A bound that no row reaches (a count): about 10 Newton steps or 60 halvings are usual."""


def candidates(logits: Tensor, top: Tensor, reach: Tensor) -> Kept:
    """The only classes that can be in the support: x > max x − reach.

    Args:
        logits: (rows, classes).
        top: (rows, 1) the rows' maxima.
        reach: (rows, 1) T/β in units of the logits; +inf keeps every unmasked class.
    """
    floor = (top.double() - reach * (1 + 1e-12)).to(logits.dtype)
    floor = torch.nextafter(floor, torch.full_like(floor, -torch.inf))
    return gather(logits, logits > floor)


def simplex_threshold(scores: Tensor) -> Tensor:
    """The s with Σ [1 + y − s]₊ = 1, (rows, 1): the Euclidean projection onto the simplex.

    Args:
        scores: (rows, kept) float64, the largest of each row 0, −inf where padded.
    """
    raised = 1 + scores
    threshold = torch.zeros_like(scores[:, :1])
    for _ in range(ITERATIONS):
        inside = raised > threshold
        count = row_sum(inside.double())
        total = row_sum(torch.where(inside, raised, 0))
        following = (total - 1) / count
        climbs = following > threshold
        if not bool(climbs.any()):
            break
        threshold = torch.where(climbs, following, threshold)
    return threshold


def projection(
    scores: Tensor, slope: Slope, classes: Tensor, offset: Tensor | None = None
) -> Solution:
    """The solution p = [1 + y − s]₊ of kept classes; with `offset` its threshold τ as normalizer.

    Args:
        scores: (rows, kept) float64, the largest of each row 0, −inf where padded.
        slope: the scores' derivative by the logits.
        classes: (rows, kept) class ids.
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
    size = row_sum(inside.double())
    diagonal = torch.where(inside, slope.own, 0)
    left, right = [inside / size], [diagonal]
    if slope.shared is not None and slope.moving is not None:
        shared = torch.where(inside, slope.shared, 0)
        left.append(torch.where(inside, row_sum(shared) / size - shared, 0))
        right.append(slope.moving)
    jacobian = Jacobian(diagonal, torch.stack(left, 1), torch.stack(right, 1), classes)
    return zero_where(size == 1, jacobian)


def tsallis_potential(masses: Tensor, logs: Tensor, scores: Tensor, beta: Tensor) -> Tensor:
    """Ω*(z) − max z of the Fenchel–Young loss of the Tsallis entropy, (rows, 1).

    ⟨p, y⟩ + (1 − Σp^α)/(α(α − 1)), written so that α → 1 is ⟨p, y⟩ + Shannon's entropy.
    """
    inside = masses > 0
    entropy = torch.where(inside, -masses * torch.expm1(beta * logs) / (beta * (1 + beta)), 0)
    return row_sum(torch.where(inside, masses * scores, 0) + entropy)


@dataclass(frozen=True, slots=True)
class Roots:
    """Entmax of a few candidates.

    Attributes:
        probabilities: (rows, kept) float64.
        log_probabilities: (rows, kept) float64.
        shift: (rows, 1) s of p = e_β(y − s).
    """

    probabilities: Tensor
    log_probabilities: Tensor
    shift: Tensor


def entmax_roots(scores: Tensor, beta: Tensor) -> Roots:
    """Solves Σ e_β(y − s) = 1 for every row.

    Args:
        scores: (rows, kept) float64, the largest of each row 0, −inf where padded.
        beta: (rows, 1) float64 in [−0.9, 15], not 0 (1e-100 stands for the limit).
    """
    steep = (beta > 1).squeeze(-1)
    if not bool(steep.any()):
        return _gentle_roots(scores, beta)
    logs = torch.empty_like(scores)
    shift = torch.empty_like(beta)
    for rows, solve in ((steep, _steep_roots), (~steep, _gentle_roots)):
        if bool(rows.any()):
            part = solve(scores[rows], beta[rows])
            logs[rows], shift[rows] = part.log_probabilities, part.shift
    return Roots(logs.exp(), logs, shift)


def _log_exponential(differences: Tensor, beta: Tensor) -> Tensor:
    """The logarithm of e_β(d), −inf where 1 + βd ≤ 0."""
    return torch.log1p((beta * differences).clamp_(min=-1.0)).div_(beta)


def _gentle_roots(scores: Tensor, beta: Tensor) -> Roots:
    """β ≤ 1: Newton on (Σ p)^β = 1 from s = 0, which climbs monotonically."""
    shift = torch.zeros_like(beta)
    for _ in range(ITERATIONS):
        differences = scores - shift
        masses = exponential(_log_exponential(differences, beta))
        total = row_sum(masses)
        base = (1 + beta * differences).clamp_(min=0)
        slope = row_sum(torch.where(base > 0, masses / base, 0))
        following = shift - total * torch.expm1(-beta * total.log()) / (beta * slope)
        climbs = following > shift
        if not bool(climbs.any()):
            break
        shift = torch.where(climbs, following, shift)
    logs = _near_one(_log_exponential(scores - shift, beta))
    return Roots(exponential(logs), logs, shift)


def _near_one(logs: Tensor) -> Tensor:
    """Log-probabilities whose largest, where it is near 0, keeps its digits.

    1 less the sum of the others knows a probability near 1 better than the threshold does.
    """
    place = logs.argmax(dim=-1, keepdim=True)
    others = row_sum(exponential(logs.scatter(-1, place, -torch.inf)))
    largest = torch.where(others < 0.1, torch.log1p(-others), logs.gather(-1, place))
    return logs.scatter(-1, place, largest)


def _steep_roots(scores: Tensor, beta: Tensor) -> Roots:
    """β > 1: e_β rises vertically at its zero, so s cannot carry the digits of a small p.

    Halving finds s to rounding; every class within reach of that is tried for membership
    exactly; then the smallest probability t itself is the unknown: with a_i = β(y_i − y_min),
    Σ (t^β + a_i)^{1/β} = 1 is convex and its slope lies between 1 and the support's size.
    """
    low = torch.zeros_like(beta)
    width = row_sum((scores > -torch.inf).double())
    high = -torch.expm1(-beta * width.log()) / beta
    for _ in range(ITERATIONS):
        middle = low + (high - low) / 2
        if not bool(((middle > low) & (middle < high)).any()):
            break
        inside = row_sum(_log_exponential(scores - middle, beta).exp_()) >= 1
        low, high = torch.where(inside, middle, low), torch.where(inside, high, middle)

    support = 1 + beta * (scores - low * (1 - 1e-14) + 1e-15) > 0
    for _ in range(scores.shape[-1]):
        least = torch.where(support, scores, torch.inf).amin(dim=-1, keepdim=True)
        above = (beta * (scores - least)).clamp_(min=0)
        out = support & (scores == least) & (row_sum((above.log() / beta).exp_()) >= 1)
        if not bool(out.any()):
            break
        support = support & ~out

    above = torch.where(support, beta * (scores - least), 0)
    smallest = 1 / row_sum(support.double())
    for _ in range(ITERATIONS):
        logs = torch.where(
            support, ((beta * smallest.log()).exp() + above).log() / beta, -torch.inf
        )
        slope = row_sum(torch.where(support, ((beta - 1) * (smallest.log() - logs)).exp(), 0))
        following = (smallest - (row_sum(logs.exp()) - 1) / slope).clamp(min=1e-300)
        falls = following < smallest
        if not bool(falls.any()):
            break
        smallest = torch.where(falls, following, smallest)
    shift = least + -torch.expm1(beta * smallest.log()) / beta
    return Roots(logs.exp(), logs, shift)
