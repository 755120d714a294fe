"""Keeping the largest classes of a row, ties by lower class id.

Order is by value, then by lower class id. `"first"` keeps exactly as many as the rule says,
`"all"` also everything equal to the last one kept. torch.topk breaks ties in no useful order,
so only the values it returns are used here, never its indices.
"""

from typing import Literal

import torch
from torch import Tensor

from mappings import kernels
from mappings.compact import Kept, above, peaks, whole
from mappings.ranking import greatest

Ties = Literal["first", "all"]


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
    last = _last(values, counts.clamp(max=int(counts[cut].max())))
    kept = present & (values >= last)
    if ties == "first":
        kept = first_ties(values, kept, last, counts)
    return torch.where(cut.unsqueeze(-1), kept, present)


def top_classes(logits: Tensor, counts: Tensor, ties: Ties) -> Kept:
    """The `counts` largest of each row; arguments as for `largest`, the logits contiguous."""
    kept, heights = whole(logits), peaks(logits)
    within = counts.clamp(max=logits.shape[-1])
    most = int(within.max())
    if 4 * most <= heights.shape[-1]:
        # So many blocks have a class at least as large as the last of their maxima.
        floor = _last(heights, within)
        lower = torch.nextafter(floor, torch.full_like(floor, -torch.inf))
        kept = above(logits, heights, lower)
    return kept.only(largest(kept.values, counts, ties))


def _last(values: Tensor, counts: Tensor) -> Tensor:
    """The last of the `counts` largest of each row, (rows, 1); −inf where so many are masked."""
    if kernels.available(values.device):
        return kernels.nth_largest(values, counts)
    return greatest(values, int(counts.max())).gather(-1, counts - 1)


def first_ties(values: Tensor, kept: Tensor, last: Tensor, counts: Tensor) -> Tensor:
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


def or_argmax(keep: Tensor, logits: Tensor) -> Tensor:
    """The mask `keep`, or the argmax of lowest class id alone in the rows it leaves empty."""
    empty = ~keep.any(dim=-1, keepdim=True)
    if not bool(empty.any()):
        return keep
    first = largest(logits, torch.ones_like(empty, dtype=torch.int64), "first")
    return torch.where(empty, first, keep)
