"""The candidates of the relu family on a GPU: one pass finds the maxima and what is near them.

A chunk lists what is within reach of its own maximum, which no other chunk's can lower; once the
row's is known, only these lists are looked through again. A chunk whose list has no room, as in a
flat row, is read once more instead.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from mappings.compact import Kept, whole
from mappings.rows import maximum

CHUNK = 1 << 12
"""Classes of one program (a count)."""

ROOM = 1 << 9
"""Classes that a chunk can list in the first pass (a count)."""

WARPS = 8
"""Warps of one program (a count)."""

ROUNDING = 1e-12
"""How much further is looked, so that rounding loses no class (relative)."""


def candidates(logits: Tensor, reach: Tensor) -> Kept:
    """The classes with x ≥ max x − reach, the very ones that `compact.candidates` finds.

    Args:
        logits: (rows, classes) float16, bfloat16, float32 or float64, contiguous, −inf where
            masked; every row has a finite maximum.
        reach: (rows, 1) float64, in units of the logits; +inf keeps every unmasked class.
    """
    rows, classes = logits.shape
    chunks = triton.cdiv(classes, CHUNK)
    wide = torch.promote_types(logits.dtype, torch.float32)
    reach = reach.expand(rows, 1).contiguous()
    tops = torch.empty(rows, chunks, dtype=wide, device=logits.device)
    found = torch.empty(rows, chunks, dtype=torch.int32, device=logits.device)
    listed = torch.empty(rows, chunks, ROOM, dtype=logits.dtype, device=logits.device)
    places = torch.empty(rows, chunks, ROOM, dtype=torch.int32, device=logits.device)
    lists = (found, listed, places)
    fixed = {"CHUNK": CHUNK, "ROOM": ROOM, "num_warps": WARPS}
    grid = (rows, chunks)
    slack = 1 + ROUNDING
    _look[grid](logits, reach, tops, *lists, classes, chunks, SLACK=slack, **fixed)
    floor = (maximum(tops).double() - reach * slack).to(wide)
    counts = torch.empty_like(found)
    _count[grid](logits, floor, *lists, counts, classes, chunks, **fixed)
    ends = counts.cumsum(dim=-1)
    sizes = ends[:, -1]
    width, least = torch.stack([sizes.amax(), sizes.amin()]).tolist()
    if least == classes:
        return whole(logits)
    values = torch.full((rows, width), -torch.inf, dtype=logits.dtype, device=logits.device)
    ids = torch.full((rows, width), -1, dtype=torch.int64, device=logits.device)
    starts = ends - counts
    _gather[grid](logits, floor, *lists, starts, values, ids, classes, chunks, width, **fixed)
    return Kept(values, ids)


@triton.jit
def _look(
    logits,
    reaches,
    tops,
    found,
    listed,
    places,
    classes,
    chunks,
    SLACK: tl.constexpr,
    CHUNK: tl.constexpr,
    ROOM: tl.constexpr,
):
    """The maximum of a chunk, and a list of what is within reach of it."""
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    lanes = tl.arange(0, CHUNK)
    ids = chunk * CHUNK + lanes
    values = tl.load(logits + row * classes + ids, mask=ids < classes, other=float("-inf"))
    wide = values.to(tops.dtype.element_ty)
    top = tl.max(wide, axis=0)
    floor = (top.to(tl.float64) - tl.load(reaches + row) * SLACK).to(wide.dtype)
    near = (wide >= floor) & (wide > float("-inf"))
    slots = tl.cumsum(near.to(tl.int32), axis=0) - 1
    part = row * chunks + chunk
    tl.store(tops + part, top)
    tl.store(found + part, tl.sum(near.to(tl.int32), axis=0))
    fits = near & (slots < ROOM)
    tl.store(listed + part * ROOM + slots, values, mask=fits)
    tl.store(places + part * ROOM + slots, ids, mask=fits)


@triton.jit
def _again(
    logits,
    floors,
    found,
    listed,
    places,
    classes,
    chunks,
    CHUNK: tl.constexpr,
    ROOM: tl.constexpr,
):
    """The listed classes of a chunk, their ids, and which of them are candidates of the row."""
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    part = row * chunks + chunk
    lanes = tl.arange(0, CHUNK)
    ids = chunk * CHUNK + lanes
    count = tl.load(found + part)
    if count <= ROOM:
        inside = lanes < count
        values = tl.load(listed + part * ROOM + lanes, mask=inside, other=float("-inf"))
        ids = tl.load(places + part * ROOM + lanes, mask=inside, other=0)
    else:
        values = tl.load(logits + row * classes + ids, mask=ids < classes, other=float("-inf"))
    wide = values.to(floors.dtype.element_ty)
    near = (wide >= tl.load(floors + row)) & (wide > float("-inf"))
    return values, ids, near


@triton.jit
def _count(
    logits,
    floors,
    found,
    listed,
    places,
    counts,
    classes,
    chunks,
    CHUNK: tl.constexpr,
    ROOM: tl.constexpr,
):
    """How many candidates of the row a chunk has."""
    _, _, near = _again(logits, floors, found, listed, places, classes, chunks, CHUNK, ROOM)
    part = tl.program_id(0).to(tl.int64) * chunks + tl.program_id(1)
    tl.store(counts + part, tl.sum(near.to(tl.int32), axis=0))


@triton.jit
def _gather(
    logits,
    floors,
    found,
    listed,
    places,
    starts,
    values_out,
    ids_out,
    classes,
    chunks,
    width,
    CHUNK: tl.constexpr,
    ROOM: tl.constexpr,
):
    """The candidates of a chunk, to their place in the row's line."""
    values, ids, near = _again(logits, floors, found, listed, places, classes, chunks, CHUNK, ROOM)
    row = tl.program_id(0).to(tl.int64)
    start = tl.load(starts + row * chunks + tl.program_id(1))
    slots = row * width + start + tl.cumsum(near.to(tl.int32), axis=0) - 1
    tl.store(values_out + slots, values, mask=near)
    tl.store(ids_out + slots, ids.to(tl.int64), mask=near)
