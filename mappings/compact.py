"""The few classes of a row that matter, gathered out of a vocabulary."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Kept:
    """The kept classes of each row, side by side.

    Attributes:
        values: (rows, kept) the logits kept, −inf where padded.
        classes: (rows, kept) int64 class ids, ascending, −1 where padded.
    """

    values: Tensor
    classes: Tensor


def gather(logits: Tensor, keep: Tensor) -> Kept:
    """Gathers the logits where `keep` (rows, classes) is true."""
    rows = keep.shape[0]
    row, cls, slot, width = positions(keep)
    values = logits.new_full((rows, width), -torch.inf)
    classes = torch.full((rows, width), -1, dtype=torch.int64, device=logits.device)
    values[row, slot] = logits[row, cls]
    classes[row, slot] = cls
    return Kept(values, classes)


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


def positions(keep: Tensor) -> tuple[Tensor, Tensor, Tensor, int]:
    """Row, class id and place within its row of every true entry, and the width they need."""
    row, cls = keep.nonzero(as_tuple=True)
    counts = torch.bincount(row, minlength=keep.shape[0])
    starts = counts.cumsum(0) - counts
    slot = torch.arange(row.numel(), device=keep.device) - starts[row]
    return row, cls, slot, max(1, int(counts.max())) if counts.numel() else 1


def along(values: Tensor, classes: Tensor | None) -> Tensor:
    """Per-class values (rows or 1, 1 or classes) at the kept places; 0 where they are padded."""
    if classes is None or values.shape[-1] == 1:
        return values
    taken = values.expand(classes.shape[0], -1).gather(-1, classes.clamp_min(0))
    return torch.where(classes >= 0, taken, 0)


def spread(values: Tensor, classes: Tensor | None, width: int, empty: float) -> Tensor:
    """Kept values at their classes' places among `width` classes; `empty` elsewhere."""
    if classes is None:
        return values
    out = torch.full((values.shape[0], width), empty, dtype=values.dtype, device=values.device)
    row, slot = (classes >= 0).nonzero(as_tuple=True)
    out[row, classes[row, slot]] = values[row, slot]
    return out
