"""Entmax of a few candidates, solved exactly for any β = α − 1.

p_i = e_β(y_i − s) with y = (x − max x)/T and the q-exponential e_β(d) = [1 + βd]₊^{1/β}:
sparsemax is β = 1, softmax the limit β = 0. s is the one root of Σ p = 1. This form has no
cancellation for β near 0 and is the same for β < 0.

For β ≤ 1 the root is found by Newton's method on the ℓ_{1/β} norm of the positive parts, convex
in s, so that it climbs from the left without a safeguard. For β > 1 see `_steep`.

Reference: Peters, Niculae, Martins 2019, "Sparse Sequence-to-Sequence Models".
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from mappings import kernels
from mappings.rows import exponential, exponential_, row_sum

SOFTMAX_LIMIT = 1e-100
"""Stands for β = 0, where e_β is the exponential (dimensionless)."""

SQUARE = 0.5
"""The β whose e_β is a square, which takes neither logarithm nor exponential."""

NEAR = -0.2
"""A log-probability below which the others hold more than 0.1 (in nats)."""

LONG, SAMPLED = 1 << 13, 16
"""Rows of more classes than this start from the root of every 16th (counts)."""

TINY = 1e-300
"""Stands for 0 under a division (dimensionless)."""

ITERATIONS = 200
"""A bound that no row reaches (a count): about 10 Newton steps or 60 halvings are usual."""


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
        beta: (rows, 1) float64 in [−0.9, 15], not 0 (`SOFTMAX_LIMIT` stands for it).
    """
    flat = beta.squeeze(-1)
    logs, shift = torch.empty_like(scores), torch.empty_like(beta)
    kinds = (
        (flat > 1, _steep),
        (flat == SQUARE, _gentle),
        ((flat <= 1) & (flat != SQUARE), _gentle),
    )
    for rows, solve in kinds:
        if bool(rows.all()):
            logs, shift = solve(scores, beta)
        elif bool(rows.any()):
            logs[rows], shift[rows] = solve(scores[rows], beta[rows])
    return Roots(exponential(logs), logs, shift)


def _log_exponential(differences: Tensor, beta: Tensor) -> Tensor:
    """The logarithm of e_β(d), −inf where 1 + βd ≤ 0."""
    logs = torch.log1p((beta * differences).clamp_(min=-1.0)).div_(beta)
    limit = beta == SOFTMAX_LIMIT
    return torch.where(limit, differences, logs) if bool(limit.any()) else logs


def _gentle(scores: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """β ≤ 1: Newton on (Σ p)^β = 1, which climbs monotonically from wherever the sum exceeds 1."""
    if kernels.available(scores.device):
        shift = kernels.entmax_shift(scores, beta, SOFTMAX_LIMIT, ITERATIONS)
        return _near_one(_log_exponential(scores - shift, beta)), shift
    shift = torch.zeros_like(beta)
    long = (scores > -torch.inf).sum(dim=-1, keepdim=True) > LONG
    if bool(long.any()):
        # A sample says about where the root is; a step from there ends at or below it.
        guess = _climbed(scores[:, ::SAMPLED].contiguous(), beta, shift, SAMPLED)
        stepped = _step(scores, beta, guess, 1)[0].clamp_(min=0)
        shift = torch.where(long, stepped, shift)
    shift = _climbed(scores, beta, shift, 1)
    return _near_one(_log_exponential(scores - shift, beta)), shift


def _climbed(scores: Tensor, beta: Tensor, shift: Tensor, weight: int) -> Tensor:
    """The root of weight · Σ e_β(y − s) = 1 by steps up from `shift`, (rows, 1)."""
    for _ in range(ITERATIONS):
        following, total = _step(scores, beta, shift, weight)
        climbs = (following > shift) & (total > 1)
        if not bool(climbs.any()):
            break
        shift = torch.where(climbs, following, shift)
    return shift


def _step(scores: Tensor, beta: Tensor, shift: Tensor, weight: int) -> tuple[Tensor, Tensor]:
    """One step of Newton from `shift`, and the sum there, (rows, 1) each."""
    excess = (scores - shift).mul_(beta).clamp_(min=-1.0)
    if bool((beta == SQUARE).all()):
        base = excess.add_(1)
        slope = weight * row_sum(base)
        total = weight * row_sum(base.square_())
    else:
        logs = torch.log1p(excess).div_(beta)
        limit = beta == SOFTMAX_LIMIT
        if bool(limit.any()):
            logs = torch.where(limit, scores - shift, logs)
        masses = exponential_(logs)
        total = weight * row_sum(masses)
        # Where the base is 0 so is the mass.
        slope = weight * row_sum(masses.div_(excess.add_(1).clamp_(min=TINY)))
    return shift - total * torch.expm1(-beta * total.log()) / (beta * slope), total


def _near_one(logs: Tensor) -> Tensor:
    """Log-probabilities whose largest, where it is near 0, keeps its digits.

    1 less the sum of the others knows a probability near 1 better than the threshold does.
    """
    if bool((logs.amax(dim=-1) < NEAR).all()):
        return logs
    place = logs.argmax(dim=-1, keepdim=True)
    others = row_sum(exponential(logs.scatter(-1, place, -torch.inf)))
    largest = torch.where(others < 0.1, torch.log1p(0 - others), logs.gather(-1, place))
    return logs.scatter(-1, place, largest)


def _steep(scores: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """β > 1: e_β rises vertically at its zero, so s cannot carry the digits of a small p.

    Halving finds s to rounding; every class within reach of that is tried for membership
    exactly; then the smallest probability t itself is the unknown: with a_i = β(y_i − y_min),
    Σ (t^β + a_i)^{1/β} = 1 is convex and its slope lies between 1 and the support's size.
    """
    low = torch.zeros_like(beta)
    width = (scores > -torch.inf).sum(dim=-1, keepdim=True).double()
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
    smallest = 1 / support.sum(dim=-1, keepdim=True).double()
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
    return logs, shift
