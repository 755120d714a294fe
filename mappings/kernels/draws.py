"""Seeded draws on a GPU: which chunk of the row an aim falls into, then which class of it.

The uniforms are those of `mappings.philox`, made where they are used. What is added up lies in
chunks of fixed size, so a draw depends on its row, its seed and its index alone.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

CHUNK = 1 << 10
"""Classes of one chunk (a count); never another, as the order of a sum depends on it."""

WARPS = 4
"""Warps of one program (a count); the order of a sum depends on them too."""


def drawn(masses: Tensor, seed: Tensor, samples: int, stream: int) -> Tensor:
    """Places (rows, samples) of drawn classes, int64; one of mass 0 is never drawn.

    Args:
        masses: (rows, kept) float32 or float64, at least 0; of a row of zeros comes any place.
        seed: (rows, 1) int64, the bits of an unsigned 64-bit seed.
        samples: draws a row (a count).
        stream: which of the seed's numbers to take.
    """
    masses = masses.contiguous()
    seed = seed.expand(len(masses), 1).contiguous()
    rows, kept = masses.shape
    chunks = triton.cdiv(kept, CHUNK)
    sums = torch.empty(rows, chunks, dtype=torch.float64, device=masses.device)
    out = torch.empty(rows, samples, dtype=torch.int64, device=masses.device)
    _add_up[(rows * chunks,)](masses, sums, kept, chunks, CHUNK=CHUNK, num_warps=WARPS)
    _draw[(rows * samples,)](
        masses,
        sums,
        seed,
        out,
        kept,
        chunks,
        samples,
        STREAM=stream,
        CHUNK=CHUNK,
        SLOTS=triton.next_power_of_2(chunks),
        num_warps=WARPS,
    )
    return out


@triton.jit
def _add_up(masses, sums, kept, chunks, CHUNK: tl.constexpr):
    """The sum of a chunk."""
    program = tl.program_id(0)
    row = (program // chunks).to(tl.int64)
    lanes = (program % chunks) * CHUNK + tl.arange(0, CHUNK)
    values = tl.load(masses + row * kept + lanes, mask=lanes < kept, other=0.0)
    tl.store(sums + program, tl.sum(values.to(tl.float64), axis=0))


@triton.jit
def _uniform(seed, index, STREAM: tl.constexpr):
    """The number `index` of a seed's stream, strictly between 0 and 1."""
    pair = index.to(tl.int64) >> 1
    nothing = tl.zeros_like(pair).to(tl.uint32)
    low = (pair & 0xFFFFFFFF).to(tl.uint32)
    high = (pair >> 32).to(tl.uint32)
    a, b, c, d = tl.philox(seed, low, high, nothing + STREAM, nothing)
    odd = (index & 1) == 1
    first = tl.where(odd, c, a).to(tl.int64)
    second = tl.where(odd, d, b).to(tl.int64)
    whole = (first << 20) | (second >> 12)
    return (whole.to(tl.float64) + 0.5) * 2.220446049250313e-16


@triton.jit
def _first_above(sums, aim, heavy, lanes, SIZE: tl.constexpr):
    """The first lane with a mass whose cumulative sum is above the aim.

    Rounding can put an aim above all sums: then the last lane with a mass is meant.
    """
    found = tl.min(tl.where(heavy & (sums > aim), lanes, SIZE), axis=0)
    last = tl.max(tl.where(heavy, lanes, 0), axis=0)
    return tl.minimum(found, last)


@triton.jit
def _draw(
    masses,
    sums,
    seeds,
    out,
    kept,
    chunks,
    samples,
    STREAM: tl.constexpr,
    CHUNK: tl.constexpr,
    SLOTS: tl.constexpr,
):
    """One draw of one row."""
    program = tl.program_id(0)
    row = (program // samples).to(tl.int64)
    slots = tl.arange(0, SLOTS)
    parts = tl.load(sums + row * chunks + slots, mask=slots < chunks, other=0.0)
    reached = tl.cumsum(parts, axis=0)
    total = tl.max(reached, axis=0)
    aim = _uniform(tl.load(seeds + row), program % samples, STREAM) * total
    chunk = _first_above(reached, aim, parts > 0, slots, SLOTS)
    begun = tl.max(tl.where(slots < chunk, reached, 0.0), axis=0)
    lanes = tl.arange(0, CHUNK)
    places = chunk * CHUNK + lanes
    values = tl.load(masses + row * kept + places, mask=places < kept, other=0.0)
    within = begun + tl.cumsum(values.to(tl.float64), axis=0)
    lane = _first_above(within, aim, values > 0, lanes, CHUNK)
    tl.store(out + program, (chunk * CHUNK + lane).to(tl.int64))
