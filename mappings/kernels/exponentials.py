"""Softmax on a GPU: one pass that adds up, one that writes; chunks of a row work side by side."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from mappings.rows import HUGE, LOWEST, exponential, maximum, row_sum, scaled

CHUNK = 1 << 12
"""Classes of one program (a count); never another, as the order of a sum depends on it."""

WARPS = 8
"""Warps of one program (a count); the order of a sum depends on them too."""


def shares(logits: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Softmax of x/T: the maxima, the probabilities, and Σ e^{(x − max x)/T}.

    Args:
        logits: (rows, classes) float16, bfloat16, float32 or float64, contiguous, −inf where
            masked; every row has a finite maximum.
        temperature: (rows, 1) float64; 0 shares the mass among the maxima.

    Returns:
        (rows, 1) and (rows, classes) in float64 for float64 logits, else float32; (rows, 1) in
        float64. At T = 1 the exponentials of logits that are not float64 are taken in float32.
    """
    rows, classes = logits.shape
    chunks = triton.cdiv(classes, CHUNK)
    wide = logits.dtype == torch.float64
    dtype = torch.float64 if wide else torch.float32
    temperature = temperature.expand(rows, 1).contiguous()
    tops = torch.empty(rows, chunks, dtype=dtype, device=logits.device)
    sums = torch.empty(rows, chunks, dtype=torch.float64, device=logits.device)
    masses = torch.empty(rows, classes, dtype=dtype, device=logits.device)
    fixed = {
        "CHUNK": CHUNK,
        "WIDE": wide,
        "HUGE": HUGE,
        "LOWEST_WIDE": LOWEST[torch.float64],
        "LOWEST_NARROW": LOWEST[torch.float32],
        "num_warps": WARPS,
    }
    grid = (rows, chunks)
    _add_up[grid](logits, temperature, tops, sums, classes, chunks, **fixed)
    top = maximum(tops)
    total = row_sum(sums * exponential(scaled(tops, top, temperature)))
    _write[grid](logits, temperature, top, total, masses, classes, **fixed)
    return top, masses, total


@triton.jit
def _wide(values, top, temperature, HUGE: tl.constexpr, LOWEST: tl.constexpr):
    """e^{(x − top)/T} in float64; T = 0 is 1 at the top and 0 elsewhere."""
    values = values.to(tl.float64)
    pace = tl.where(temperature == 0, 1.0, temperature)
    scores = (values - top) / pace
    # The difference of two huge logits can overflow where that of their halves does not.
    halves = (values * 0.5 - top * 0.5) / (pace * 0.5)
    scores = tl.where(top > HUGE, halves, scores)
    limit = tl.where(values == top, 0.0, float("-inf"))
    scores = tl.where(temperature == 0, limit, scores)
    return tl.where(scores > LOWEST, tl.exp(scores), 0.0)


@triton.jit
def _narrow(values, top, LOWEST: tl.constexpr):
    """e^{x − top} in float32."""
    scores = values.to(tl.float32) - top.to(tl.float32)
    return tl.where(scores > LOWEST, tl.exp(scores), 0.0)


@triton.jit
def _add_up(
    logits,
    temperatures,
    tops,
    sums,
    classes,
    chunks,
    CHUNK: tl.constexpr,
    WIDE: tl.constexpr,
    HUGE: tl.constexpr,
    LOWEST_WIDE: tl.constexpr,
    LOWEST_NARROW: tl.constexpr,
):
    """The maximum of a chunk, and its sum relative to that."""
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    lanes = chunk * CHUNK + tl.arange(0, CHUNK)
    values = tl.load(logits + row * classes + lanes, mask=lanes < classes, other=float("-inf"))
    temperature = tl.load(temperatures + row)
    largest = tl.max(values.to(tops.dtype.element_ty), axis=0).to(tl.float64)
    # A chunk without an unmasked class adds nothing: −inf − 0, not −inf − (−inf).
    top = tl.where(largest == float("-inf"), 0.0, largest)
    if WIDE:
        total = tl.sum(_wide(values, top, temperature, HUGE, LOWEST_WIDE), axis=0)
    else:
        if temperature == 1.0:
            total = tl.sum(_narrow(values, top, LOWEST_NARROW).to(tl.float64), axis=0)
        else:
            total = tl.sum(_wide(values, top, temperature, HUGE, LOWEST_WIDE), axis=0)
    tl.store(tops + row * chunks + chunk, largest.to(tops.dtype.element_ty))
    tl.store(sums + row * chunks + chunk, total)


@triton.jit
def _write(
    logits,
    temperatures,
    tops,
    totals,
    masses,
    classes,
    CHUNK: tl.constexpr,
    WIDE: tl.constexpr,
    HUGE: tl.constexpr,
    LOWEST_WIDE: tl.constexpr,
    LOWEST_NARROW: tl.constexpr,
):
    """The probabilities of a chunk."""
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.program_id(1) * CHUNK + tl.arange(0, CHUNK)
    inside = lanes < classes
    values = tl.load(logits + row * classes + lanes, mask=inside, other=float("-inf"))
    temperature = tl.load(temperatures + row)
    top = tl.load(tops + row).to(tl.float64)
    total = tl.load(totals + row)
    place = masses + row * classes + lanes
    if WIDE:
        tl.store(place, _wide(values, top, temperature, HUGE, LOWEST_WIDE) / total, mask=inside)
    else:
        if temperature == 1.0:
            # Divisions in float64 would take longer than the memory does.
            share = _narrow(values, top, LOWEST_NARROW) / total.to(tl.float32)
            tl.store(place, share, mask=inside)
        else:
            exact = _wide(values, top, temperature, HUGE, LOWEST_WIDE) / total
            tl.store(place, exact.to(tl.float32), mask=inside)
