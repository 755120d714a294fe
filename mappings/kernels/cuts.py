"""Where to cut a row so that what stays holds enough, on a GPU and without a sort.

The keys of floating-point numbers, their bits read as integers, ascend with them; the cut is found
by halving between keys. Sums run over blocks in class-id order, so padding changes no bit.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1 << 11
"""Classes looked at together (a count); never another, as the order of a sum depends on it."""

WARPS = 8
"""Warps of one program (a count); the order of a sum depends on them too."""


def heaviest(values: Tensor, masses: Tensor, total: Tensor, tail: Tensor) -> tuple[Tensor, Tensor]:
    """Where the fewest classes, largest values first, that leave at most `tail` behind end.

    Args:
        values: (rows, any) float32 or float64, −inf where masked.
        masses: (rows, any) float64, at least 0, one for all equal values; 0 where masked.
        total: (rows, 1) float64, of all masses of the row.
        tail: (rows, 1) float64, how much of it may be left out.

    Returns:
        (rows, 1) the last value taken, −inf where all together leave more than the tail; and
        (rows, 1) int64 how many classes that takes, equal ones one by one.
    """
    return _cut(values, masses.contiguous(), total, tail)


def nth_largest(values: Tensor, counts: Tensor) -> Tensor:
    """The last of the `counts` largest, (rows, 1); −inf where fewer are unmasked.

    Args:
        values: (rows, any) float32 or float64, −inf where masked.
        counts: (rows, 1) int64, at least 1.
    """
    total = counts.double()
    return _cut(values, None, total, torch.zeros_like(total))[0]


def _cut(
    values: Tensor, masses: Tensor | None, total: Tensor, tail: Tensor
) -> tuple[Tensor, Tensor]:
    """As `heaviest`; without masses every class has 1."""
    values = values.contiguous()
    rows, width = values.shape
    last = torch.empty(rows, 1, dtype=values.dtype, device=values.device)
    counts = torch.empty(rows, 1, dtype=torch.int64, device=values.device)
    _halve[(rows,)](
        values,
        values if masses is None else masses,
        total.expand(rows, 1).contiguous(),
        tail.expand(rows, 1).contiguous(),
        last,
        counts,
        width,
        WEIGHED=masses is not None,
        BLOCK=BLOCK,
        num_warps=WARPS,
    )
    return last, counts


@triton.jit
def _keys(values):
    """Integers in the order of the numbers; −0 is 0."""
    if values.dtype == tl.float64:
        bits = (values + 0.0).to(tl.int64, bitcast=True)
        keys = bits ^ ((bits >> 63) & 0x7FFFFFFFFFFFFFFF)
    else:
        narrow = (values + 0.0).to(tl.int32, bitcast=True)
        keys = (narrow ^ ((narrow >> 31) & 0x7FFFFFFF)).to(tl.int64)
    return keys


@triton.jit
def _held(values, masses, row, width, key, WEIGHED: tl.constexpr, BLOCK: tl.constexpr):
    """The mass and the count of what is at least at a key; the keys next to it, from there on."""
    held = tl.zeros((BLOCK,), dtype=tl.float64)
    counted = tl.zeros((BLOCK,), dtype=tl.int64)
    least = tl.full((BLOCK,), 0x7FFFFFFFFFFFFFFF, dtype=tl.int64)
    below = tl.full((BLOCK,), -0x7FFFFFFFFFFFFFFF, dtype=tl.int64)
    for start in range(0, width, BLOCK):
        lanes = start + tl.arange(0, BLOCK)
        x = tl.load(values + row * width + lanes, mask=lanes < width, other=float("-inf"))
        keys = _keys(x)
        present = x > float("-inf")
        inside = present & (keys >= key)
        counted += inside.to(tl.int64)
        least = tl.minimum(least, tl.where(inside, keys, 0x7FFFFFFFFFFFFFFF))
        below = tl.maximum(below, tl.where(present & (keys < key), keys, -0x7FFFFFFFFFFFFFFF))
        if WEIGHED:
            held += tl.load(masses + row * width + lanes, mask=inside, other=0.0)
    count = tl.sum(counted, axis=0)
    mass = tl.sum(held, axis=0) if WEIGHED else count.to(tl.float64)
    return mass, count, tl.min(least, axis=0), tl.max(below, axis=0)


@triton.jit
def _halve(
    values, masses, totals, tails, lasts, counts, width, WEIGHED: tl.constexpr, BLOCK: tl.constexpr
):
    """Finds the largest key at which enough is held.

    Both ends move on to the keys of values that there are, so that the halving is over when
    none is left between them, long before the keys are.
    """
    row = tl.program_id(0).to(tl.int64)
    total, tail = tl.load(totals + row), tl.load(tails + row)
    nothing = tl.full((1,), float("-inf"), dtype=values.dtype.element_ty)
    none = tl.max(_keys(nothing), axis=0)
    mass, count, low, _ = _held(values, masses, row, width, none, WEIGHED, BLOCK)
    # A row of masked classes alone ends here.
    low = tl.where(count > 0, low, none)
    enough = total - mass <= tail
    high = tl.max(_keys(-nothing), axis=0)
    _, _, _, top = _held(values, masses, row, width, high, WEIGHED, BLOCK)
    high = tl.where(enough & (count > 0), top + 1, low)
    while low + 1 < high:
        middle = (low >> 1) + (high >> 1) + (low & high & 1)
        mass, _, least, below = _held(values, masses, row, width, middle, WEIGHED, BLOCK)
        found = total - mass <= tail
        low = tl.where(found, least, low)
        high = tl.where(found, high, below + 1)
    mass, count, _, _ = _held(values, masses, row, width, low, WEIGHED, BLOCK)
    above, fewer, _, _ = _held(values, masses, row, width, low + 1, WEIGHED, BLOCK)
    # Equal classes have equal masses: so many of them reach what is missing.
    ties = count - fewer
    share = (mass - above) / tl.maximum(ties, 1).to(tl.float64)
    missing = (total - tail - above) / tl.where(share > 0, share, 1.0)
    taken = tl.minimum(tl.maximum(tl.ceil(missing).to(tl.int64), 1), ties)
    last = tl.where(enough & (count > 0), low, none)
    tl.store(counts + row, tl.where(enough, fewer + taken, count))
    if values.dtype.element_ty == tl.float64:
        bits = last ^ ((last >> 63) & 0x7FFFFFFFFFFFFFFF)
        tl.store(lasts + row, bits.to(tl.float64, bitcast=True))
    else:
        narrow = last.to(tl.int32)
        narrow = narrow ^ ((narrow >> 31) & 0x7FFFFFFF)
        tl.store(lasts + row, narrow.to(tl.float32, bitcast=True))
