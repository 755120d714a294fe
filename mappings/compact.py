"""The few classes of a row that matter, gathered out of a vocabulary."""

from dataclasses import dataclass

import torch
from torch import Tensor

from mappings import kernels
from mappings.places import greater, places
from mappings.rows import maximum

BLOCK = 128
"""Classes looked at by their largest first (a count)."""

DENSE = 8
"""From one block of so many on, a pass over all classes is faster than a look into blocks."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The kept classes of each row, side by side.

    Attributes:
        values: (rows, kept) the logits kept, −inf where padded.
        classes: (rows, kept) int64 class ids, ascending, −1 where padded; None: all in order.
    """

    values: Tensor
    classes: Tensor | None

    def rows(self, start: int, stop: int) -> "Kept":
        """What was kept of rows start (included) to stop (excluded)."""
        classes = None if self.classes is None else self.classes[start:stop]
        return Kept(self.values[start:stop], classes)

    def only(self, keep: Tensor) -> "Kept":
        """Those of them for which `keep` (rows, kept) is true."""
        return self.among(gather(self.values, keep))

    def among(self, fewer: "Kept") -> "Kept":
        """What was kept of these, whose ids are the places here, by class id."""
        if self.classes is None:
            return fewer
        return Kept(fewer.values, named(fewer.classes, self.classes))


def whole(logits: Tensor) -> Kept:
    """Every class, in its place."""
    return Kept(logits, None)


def unmasked(logits: Tensor) -> Kept | None:
    """The unmasked classes; None where no masked one stands before them in any row.

    So a row has the same bits however its masked classes were taken away.
    """
    if bool((logits.amin(dim=-1) > -torch.inf).all()):
        return None
    present = logits > -torch.inf
    if not bool((present[:, 1:] & ~present[:, :-1]).any()):
        return None
    return gather(logits, present)


def gather(logits: Tensor, keep: Tensor) -> Kept:
    """Gathers the logits where `keep` (rows, classes) is true."""
    return lines(logits, places(keep))


def lines(logits: Tensor, found: Tensor) -> Kept:
    """Gathers the logits at ascending places (entries,) of the flattened rows."""
    rows, classes = logits.shape
    if len(found) == logits.numel():
        return whole(logits)
    begun = torch.arange(rows + 1, device=found.device) * classes
    starts = torch.searchsorted(found, begun)
    counts = starts.diff().unsqueeze(-1)
    width = max(1, int(counts.max())) if rows else 1
    if rows * width == len(found):
        # Lines of one length stand side by side as they are.
        found = found.view(rows, width)
        return Kept(logits.flatten()[found], found - begun[:-1].unsqueeze(-1))
    slots = torch.arange(width, device=found.device)
    absent = slots >= counts
    if len(found) == 0:
        found = found.new_zeros(1)
    near = found[(starts[:-1].unsqueeze(-1) + slots).clamp_(max=len(found) - 1)]
    values = logits.flatten()[near].masked_fill_(absent, -torch.inf)
    return Kept(values, near.sub_(begun[:-1].unsqueeze(-1)).masked_fill_(absent, -1))


def peaks(logits: Tensor) -> Tensor:
    """The largest logit of every block of `BLOCK` classes, (rows, blocks)."""
    classes = logits.shape[-1]
    whole = classes - classes % BLOCK
    heights = [logits[:, :whole].unflatten(-1, (-1, BLOCK)).amax(-1)] if whole else []
    if whole < classes:
        heights.append(logits[:, whole:].amax(-1, keepdim=True))
    return heights[0] if len(heights) == 1 else torch.cat(heights, dim=-1)


def above(logits: Tensor, heights: Tensor, floor: Tensor) -> Kept:
    """The logits above a floor, without a pass of their own where only few blocks reach it.

    Args:
        logits: (rows, classes), contiguous.
        heights: (rows, blocks) their peaks.
        floor: (rows, 1) in their dtype.
    """
    rows, classes = logits.shape
    if classes < 2 * BLOCK:
        return gather(logits, greater(logits, floor))
    tall = places(greater(heights, floor))
    if DENSE * tall.numel() > heights.numel():
        return gather(logits, greater(logits, floor))
    row, block = tall // heights.shape[-1], tall % heights.shape[-1]
    # The last block is moved back to be whole; what it shares with the one before counts once.
    start = (block * BLOCK).clamp_(max=classes - BLOCK)
    shape, strides = (rows, classes - BLOCK + 1, BLOCK), (classes, 1, 1)
    near = logits.as_strided(shape, strides, logits.storage_offset())[row, start]
    lanes = torch.arange(BLOCK, device=logits.device)
    inside = (near > floor[row]) & (start.unsqueeze(-1) + lanes >= (block * BLOCK).unsqueeze(-1))
    found = places(inside)
    return lines(logits, (row * classes + start)[found // BLOCK] + found % BLOCK)


def candidates(logits: Tensor, reach: Tensor) -> Kept:
    """The only classes that can be in the support: x > max x − reach.

    Args:
        logits: (rows, classes), contiguous.
        reach: (rows, 1) T/β in units of the logits; +inf keeps every unmasked class.
    """
    if kernels.available(logits.device):
        return kernels.candidates(logits, reach)
    heights = peaks(logits)
    floor = (maximum(heights).double() - reach * (1 + 1e-12)).to(logits.dtype)
    return above(logits, heights, torch.nextafter(floor, torch.full_like(floor, -torch.inf)))


def named(places: Tensor | None, classes: Tensor) -> Tensor:
    """The class ids at places among kept classes, −1 where padded; None: at all of them."""
    if places is None:
        return classes
    return classes.gather(-1, places.clamp_min(0)).masked_fill_(places < 0, -1)


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
    return put(out, values, classes)


def put(out: Tensor, values: Tensor, classes: Tensor) -> Tensor:
    """Writes kept values to their classes' places in `out` (rows, classes), and returns it."""
    absent = classes < 0
    # Where a line is padded, what stands first is written once more.
    first, known = classes[:, :1], values[:, :1]
    known = torch.where(first < 0, out[:, :1].to(values.dtype), known)
    places = torch.where(absent, first.clamp_min(0), classes)
    return out.scatter_(-1, places, torch.where(absent, known, values).to(out.dtype))
