"""Keeping the largest classes of a row: by count, or by mass, ties by lower class id.

Order is by value, then by lower class id. `"first"` keeps exactly as many as the rule says,
`"all"` also everything equal to the last one kept. torch.topk breaks ties in no useful order,
so only the values it returns are used here, never its indices.
"""

from typing import Literal

import torch
from torch import Tensor

from mappings.compact import Kept, above, peaks, positions, whole
from mappings.rows import exponential, row_sum

Ties = Literal["first", "all"]

SORTED_CLASSES = 1 << 12
"""Rows up to this long are sorted whole (a count); of longer ones only what a prefix can reach."""

BINS = 1 << 11
BINS_PER_NAT = 64
"""How finely masses are counted by depth before the few classes at the cut are sorted."""

TAIL_SLACK = 1e-6
"""Relative slack of the discarded tail (dimensionless): rounding never keeps a class for it."""


def largest(values: Tensor, counts: Tensor, ties: Ties) -> Tensor:
    """Which classes are among the `counts` largest of their row, as a mask (rows, classes).

    Args:
        values: (rows, classes), −inf where masked; a masked class is never kept.
        counts: (rows, 1) int64, at least 1.
        ties: what to do with classes equal to the last one kept.
    """
    classes = values.shape[-1]
    present = values > -torch.inf
    cut = (counts < classes).squeeze(-1)
    if not bool(cut.any()):
        return present
    most = int(counts[cut].max())
    ranked = values.topk(most, dim=-1).values
    last = ranked.gather(-1, counts.clamp(max=most) - 1)
    kept = present & (values >= last)
    if ties == "first":
        kept = _first_ties(values, kept, last, counts)
    return torch.where(cut.unsqueeze(-1), kept, present)


def top_classes(logits: Tensor, counts: Tensor, ties: Ties) -> Kept:
    """The `counts` largest of each row; arguments as for `largest`, the logits contiguous."""
    kept, heights = whole(logits), peaks(logits)
    within = counts.clamp(max=logits.shape[-1])
    most = int(within.max())
    if 4 * most <= heights.shape[-1]:
        # So many blocks have a class at least as large as the last of their maxima.
        floor = heights.topk(most, dim=-1).values.gather(-1, within - 1)
        lower = torch.nextafter(floor, torch.full_like(floor, -torch.inf))
        kept = above(logits, heights, lower)
    return kept.only(largest(kept.values, counts, ties))


def _first_ties(values: Tensor, kept: Tensor, last: Tensor, counts: Tensor) -> Tensor:
    """Of the classes kept that equal `last`, only the first ones that `counts` has room for."""
    surplus = kept.sum(dim=-1, keepdim=True) > counts
    if not bool(surplus.any()):
        return kept
    rows = surplus.squeeze(-1)
    equal = values[rows] == last[rows]
    above = kept[rows] & ~equal
    room = counts[rows] - above.sum(dim=-1, keepdim=True)
    kept = kept.clone()
    kept[rows] = above | (equal & (equal.cumsum(dim=-1) <= room))
    return kept


def nucleus(scores: Tensor, mass: Tensor, ties: Ties) -> Tensor:
    """The fewest most probable classes that hold `mass`: a mask (rows, classes).

    Args:
        scores: (rows, classes) float64, masses are in proportion to e^score; the largest of a
            row is 0, −inf where masked.
        mass: (rows, 1) in [0, 1].
        ties: what to do with classes equal to the last one kept.
    """
    return shortest_prefix(-scores, exponential(scores), mass, ties)


def shortest_prefix(depth: Tensor, masses: Tensor, mass: Tensor, ties: Ties) -> Tensor:
    """The fewest classes, in order of depth, that hold `mass`: a mask (rows, classes).

    The discarded tail is at most (1 − mass)(1 + 1e-6) of the total; at least one class is kept,
    and mass = 1 keeps all.

    Args:
        depth: (rows, classes) float64 from 0 up, +inf where masked; classes are taken in order
            of it, then of class id.
        masses: (rows, classes) float64 in proportion to the probabilities.
        mass: (rows, 1) in [0, 1].
        ties: what to do with classes as deep as the last one kept.
    """
    total = row_sum(masses)
    tail = (1 - mass) * (1 + TAIL_SLACK) * total
    present = depth < torch.inf
    row, cls, slot, width = positions(present & _within_reach(depth, masses, total - tail))
    near = depth.new_full((depth.shape[0], width), torch.inf)
    near[row, slot] = depth[row, cls]
    weights = torch.zeros_like(near)
    weights[row, slot] = masses[row, cls]
    near, order = near.sort(dim=-1, stable=True)
    # Sequential, so that a longer list changes no earlier bit.
    enough = total - weights.gather(-1, order).cumsum(dim=-1) <= tail
    found = enough.to(torch.int8).argmax(dim=-1, keepdim=True)
    whole = (mass >= 1) | ~enough.any(dim=-1, keepdim=True)
    last = torch.where(whole, torch.inf, near.gather(-1, found))
    kept = present & (depth <= last)
    if ties == "first":
        kept = _first_ties(depth, kept, last, torch.where(whole, depth.shape[-1], found + 1))
    return kept


def _within_reach(depth: Tensor, masses: Tensor, needed: Tensor) -> Tensor:
    """Which classes can be in the shortest prefix that holds `needed` (rows, 1), and some more."""
    if depth.shape[-1] <= SORTED_CLASSES:
        return torch.ones_like(depth, dtype=torch.bool)
    bins = (depth * BINS_PER_NAT).clamp_(max=BINS - 1).long()
    held = masses.new_zeros(depth.shape[0], BINS).scatter_add_(-1, bins, masses).cumsum(dim=-1)
    # The bin after the one that crosses is taken too: its sums are rounded otherwise.
    crossing = (held < needed).sum(dim=-1, keepdim=True) + 1
    return (bins <= crossing) | (crossing >= BINS - 1)


def or_argmax(keep: Tensor, logits: Tensor) -> Tensor:
    """The mask `keep`, or the argmax of lowest class id alone in the rows it leaves empty."""
    empty = ~keep.any(dim=-1, keepdim=True)
    if not bool(empty.any()):
        return keep
    first = largest(logits, torch.ones_like(empty, dtype=torch.int64), "first")
    return torch.where(empty, first, keep)
