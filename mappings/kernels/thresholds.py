"""Thresholds of the relu family on a GPU: all steps of a row in one program, in float64.

The candidates are few and stay where the program runs; a row that needs many steps keeps no
other waiting.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1 << 10
"""Candidates looked at together (a count); never another, as the order of a sum depends on it."""

WARPS = 4
"""Warps of one program (a count); the order of a sum depends on them too."""


def simplex_threshold(scores: Tensor, steps: int) -> Tensor:
    """The s with Σ [1 + y − s]₊ = 1, (rows, 1), by Michelot's steps.

    Args:
        scores: (rows, kept) float64, the largest of each row 0, −inf where padded.
        steps: at most so many.
    """
    scores = scores.contiguous()
    rows, kept = scores.shape
    out = torch.empty(rows, 1, dtype=torch.float64, device=scores.device)
    _project[(rows,)](scores, out, kept, steps, BLOCK=BLOCK, num_warps=WARPS)
    return out


def entmax_shift(scores: Tensor, beta: Tensor, limit: float, steps: int) -> Tensor:
    """The s with Σ e_β(y − s) = 1, (rows, 1), by Newton's steps up from 0; for β ≤ 1.

    Args:
        scores: (rows, kept) float64, the largest of each row 0, −inf where padded.
        beta: (rows, 1) float64, not 0.
        limit: the β that stands for 0.
        steps: at most so many.
    """
    scores, beta = scores.contiguous(), beta.contiguous()
    rows, kept = scores.shape
    out = torch.empty(rows, 1, dtype=torch.float64, device=scores.device)
    _climb[(rows,)](scores, beta, out, kept, steps, LIMIT=limit, BLOCK=BLOCK, num_warps=WARPS)
    return out


@triton.jit
def _log1p(x):
    """Log(1 + x) with all its digits near 0, −inf at −1 (Kahan's quotient)."""
    base = 1.0 + x
    near = base == 1.0
    excess = tl.where(near, 1.0, base - 1.0)
    zero = base <= 0.0
    log = tl.log(tl.where(near | zero, 2.0, base))
    return tl.where(zero, float("-inf"), tl.where(near, x, log * (x / excess)))


@triton.jit
def _expm1(x):
    """e^x − 1 with all its digits near 0 (Kahan's quotient)."""
    power = tl.exp(x)
    excess = power - 1.0
    odd = (excess == 0.0) | (power == 0.0)
    log = tl.log(tl.where(odd, 2.0, power))
    return tl.where(excess == 0.0, x, tl.where(power == 0.0, -1.0, excess * (x / log)))


@triton.jit
def _project(scores, out, kept, steps, BLOCK: tl.constexpr):
    """The threshold of one row's projection onto the simplex."""
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    line = scores + row * kept
    threshold = tl.full((), 0.0, tl.float64)
    step = 0
    while step < steps:
        totals = tl.zeros([BLOCK], tl.float64)
        counts = tl.zeros([BLOCK], tl.float64)
        for start in range(0, kept, BLOCK):
            place = start + lanes
            raised = 1.0 + tl.load(line + place, mask=place < kept, other=float("-inf"))
            inside = raised > threshold
            totals += tl.where(inside, raised, 0.0)
            counts += tl.where(inside, 1.0, 0.0)
        following = (tl.sum(totals, axis=0) - 1.0) / tl.sum(counts, axis=0)
        climbs = following > threshold
        threshold = tl.where(climbs, following, threshold)
        step = tl.where(climbs, step + 1, steps)
    tl.store(out + row, threshold)


@triton.jit
def _climb(scores, betas, out, kept, steps, LIMIT: tl.constexpr, BLOCK: tl.constexpr):
    """The root of one row's entmax."""
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    line = scores + row * kept
    beta = tl.load(betas + row)
    shift = tl.full((), 0.0, tl.float64)
    step = 0
    while step < steps:
        totals = tl.zeros([BLOCK], tl.float64)
        slopes = tl.zeros([BLOCK], tl.float64)
        for start in range(0, kept, BLOCK):
            place = start + lanes
            score = tl.load(line + place, mask=place < kept, other=float("-inf"))
            present = score > float("-inf")
            # For β < 0 the base of a padded place would be infinite.
            excess = tl.where(present, score - shift, 0.0)
            base = tl.where(present, tl.maximum(1.0 + beta * excess, 0.0), 0.0)
            if beta == 0.5:
                totals += base * base
                slopes += base
            else:
                logs = _log1p(tl.maximum(beta * excess, -1.0)) / beta
                masses = tl.exp(tl.where(beta == LIMIT, excess, logs))
                masses = tl.where(present, masses, 0.0)
                totals += masses
                # Where the base is 0 so is the mass.
                slopes += masses / tl.where(base > 0.0, base, 1.0)
        total = tl.sum(totals, axis=0)
        slope = beta * tl.sum(slopes, axis=0)
        following = shift - total * _expm1(-beta * tl.log(total)) / slope
        climbs = (following > shift) & (total > 1.0)
        shift = tl.where(climbs, following, shift)
        step = tl.where(climbs, step + 1, steps)
    tl.store(out + row, shift)
