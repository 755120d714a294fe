"""Keeping the largest classes of a row: by count, or by mass, ties by lower class id.

Order is by value, then by lower class id. `"first"` keeps exactly as many as the rule says,
`"all"` also everything equal to the last one kept. torch.topk breaks ties in no useful order,
so only the values it returns are used here, never its indices.
"""

from typing import Literal

import torch
from torch import Tensor

from mappings.rows import exponential, row_sum

Ties = Literal["first", "all"]

FIRST_GUESS = 256
"""Largest classes looked at before a nucleus is known to need more (a count)."""

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


def _first_ties(values: Tensor, kept: Tensor, last: Tensor, counts: Tensor) -> Tensor:
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


def nucleus(scores: Tensor, mass: Tensor) -> Tensor:
    """How many of the largest classes hold `mass`: the shortest prefix, (rows, 1) int64.

    The discarded tail is at most (1 − mass)(1 + 1e-6) of the total; at least 1 class is kept,
    and mass = 1 keeps all.

    Args:
        scores: (rows, classes) float64, masses are in proportion to e^score; the largest of a
            row is 0, −inf where masked.
        mass: (rows, 1) in [0, 1].
    """
    classes = scores.shape[-1]
    total = row_sum(exponential(scores))
    allowed = (1 - mass) * (1 + TAIL_SLACK) * total
    every = row_sum((scores > -torch.inf).double()).long()
    looked_at = min(FIRST_GUESS, classes)
    while True:
        ranked = scores.topk(looked_at, dim=-1).values
        # Sequential, so a longer look changes no earlier bit.
        held = exponential(ranked).cumsum(dim=-1)
        enough = total - held <= allowed
        reached = enough.any(dim=-1, keepdim=True) | (mass >= 1)
        if looked_at == classes or bool(reached.all()):
            break
        looked_at = min(looked_at * 16, classes)
    found = enough.to(torch.int8).argmax(dim=-1, keepdim=True) + 1
    found = torch.where(enough.any(dim=-1, keepdim=True), found, every)
    return torch.where(mass >= 1, every, torch.minimum(found, every))


def or_argmax(keep: Tensor, logits: Tensor) -> Tensor:
    """The mask `keep`, or the argmax of lowest class id alone in the rows it leaves empty."""
    empty = ~keep.any(dim=-1, keepdim=True)
    if not bool(empty.any()):
        return keep
    first = largest(logits, torch.ones_like(empty, dtype=torch.int64), "first")
    return torch.where(empty, first, keep)
