"""The fewest classes of a row that hold a mass: of the most probable ones, or in another order.

The tail left out is at most (1 − mass)(1 + 1e-6) of the total; at least one class is kept, and
mass = 1 keeps all. Equals are taken in order of class id.
"""

import torch
from torch import Tensor

from mappings import kernels
from mappings.compact import Kept, above, along, gather, peaks, whole
from mappings.ranking import descending, ranked
from mappings.rows import exponential, maximum, row_sum, scaled
from mappings.selection import Ties, first_ties

SORTED_CLASSES = 1 << 12
"""Rows up to this long are sorted whole (a count); of longer ones only what a prefix can reach."""

BINS = 1 << 11
BINS_PER_NAT = 64
"""How finely masses are counted by depth before the few classes at the cut are sorted."""

TAIL_SLACK = 1e-6
"""Relative slack of the discarded tail (dimensionless): rounding never keeps a class for it."""

SAMPLED, OF = 32, 512
"""Of every 512 classes 32 show about where a tail begins (counts)."""
CAUTION = 0.8
"""How much of the allowed tail is left out by the look at a sample (dimensionless)."""
ROUNDING = 1e-12
"""Of the total, by how much sums may differ (dimensionless)."""
AT_ONCE = 1 << 18
"""Exponentials taken together (a count): they stay in the cache."""


def nucleus(logits: Tensor, temperature: Tensor, mass: Tensor, ties: Ties) -> Kept:
    """The fewest most probable classes that hold `mass` of softmax(x/T).

    Args:
        logits: (rows, classes) float32 or float64, contiguous, −inf where masked.
        temperature: (rows, 1).
        mass: (rows, 1) in [0, 1].
        ties: what to do with classes equal to the last one kept.
    """
    near, masses, total = _candidates(logits, temperature, mass)
    by_value = kernels.heaviest if kernels.available(logits.device) else _end
    end = by_value(near.values, masses, total, _tail(total, mass))
    return near.only(_prefix(near.values, end, mass, ties))


def _candidates(logits: Tensor, temperature: Tensor, mass: Tensor) -> tuple[Kept, Tensor, Tensor]:
    """All that a nucleus can hold, their masses e^{(x − max x)/T}, and the sum of the row's."""
    classes = logits.shape[-1]
    heights = peaks(logits)
    top = maximum(heights)
    if classes <= SORTED_CLASSES:
        masses = exponential(scaled(logits, top, temperature))
        total = row_sum(masses)
        tail = _tail(total, mass)
        # Less than half of the tail, all of them together.
        light = torch.where(tail > ROUNDING * total, tail / (2 * classes), -1.0)
        near = gather(logits, (masses > light) & (logits > -torch.inf))
        return near, along(masses, near.classes), total
    total = _total(logits, top, temperature)
    tail = _tail(total, mass)
    floor = _floor(logits, top, temperature, tail)
    near = above(logits, heights, floor)
    masses = exponential(scaled(near.values, top, temperature))
    missing = total - row_sum(masses)
    short = (missing > tail - ROUNDING * total) & (floor > -torch.inf)
    if bool(short.any()):
        near = above(logits, heights, torch.where(short, -torch.inf, floor))
        masses = exponential(scaled(near.values, top, temperature))
    return near, masses, total


def _tail(total: Tensor, mass: Tensor) -> Tensor:
    """How much may be left out, (rows, 1)."""
    return (1 - mass) * (1 + TAIL_SLACK) * total


def _total(logits: Tensor, top: Tensor, temperature: Tensor) -> Tensor:
    """Σ e^{(x − max x)/T} in float64, (rows, 1)."""
    step = max(1, AT_ONCE // logits.shape[-1])
    parts = zip(*(part.split(step) for part in (logits, top, temperature)), strict=True)
    return torch.cat([row_sum(exponential(scaled(*part))) for part in parts])


def _floor(logits: Tensor, top: Tensor, temperature: Tensor, tail: Tensor) -> Tensor:
    """Below which about the allowed tail lies, by a sample: (rows, 1) as the logits are."""
    aligned = logits.shape[-1] - logits.shape[-1] % OF
    sample = logits[:, :aligned].unflatten(-1, (-1, OF))[:, :, :SAMPLED].flatten(1)
    if kernels.available(logits.device):
        weights = exponential(scaled(sample, top, temperature))
        share = CAUTION * SAMPLED / OF
        first, _ = kernels.heaviest(sample, weights, row_sum(weights), share * tail)
        floor = torch.nextafter(first, torch.full_like(first, -torch.inf))
        return _below(floor, top, tail)
    sample = descending(sample).flip(-1)
    # From below: a few large classes, in the sample or not, would tell of themselves alone.
    left_out = exponential(scaled(sample, top, temperature)).cumsum(dim=-1)
    place = (left_out * (OF / SAMPLED) <= CAUTION * tail).sum(dim=-1, keepdim=True)
    lowest = torch.full_like(top, -torch.inf)
    return _below(torch.cat([lowest, sample], dim=-1).gather(-1, place), top, tail)


def _below(floor: Tensor, top: Tensor, tail: Tensor) -> Tensor:
    """The floor, below the maxima, and −inf where no tail may be left out."""
    lowest = torch.full_like(top, -torch.inf)
    # The maxima are kept whatever the tail may hold.
    below = torch.nextafter(top, lowest)
    return torch.where(tail > 0, torch.minimum(floor, below), lowest)


def _end(values: Tensor, masses: Tensor, total: Tensor, tail: Tensor) -> tuple[Tensor, Tensor]:
    """Where the shortest prefix ends: its last value and its size, (rows, 1) each.

    −inf where all together leave more than the tail behind.

    Args:
        values: (rows, near) what classes are taken in descending order of, −inf where masked;
            all that the prefix can reach are there.
        masses: (rows, near) float64 in proportion to the probabilities.
        total: (rows, 1) of all masses of the row.
        tail: (rows, 1) how much of it may be left out.
    """
    ordered, places = ranked(values)
    # Sequential, so that a longer list changes no earlier bit.
    enough = total - masses.gather(-1, places).cumsum(dim=-1) <= tail
    found = enough.to(torch.int8).argmax(dim=-1, keepdim=True)
    last = torch.where(enough.any(dim=-1, keepdim=True), ordered.gather(-1, found), -torch.inf)
    return last, found + 1


def _prefix(values: Tensor, end: tuple[Tensor, Tensor], mass: Tensor, ties: Ties) -> Tensor:
    """Which of the classes near are in the shortest prefix: a mask (rows, near).

    Args:
        values: as for `_end`.
        end: what that found.
        mass: (rows, 1) in [0, 1].
        ties: what to do with classes equal to the last one kept.
    """
    last = torch.where(mass >= 1, -torch.inf, end[0])
    kept = (values >= last) & (values > -torch.inf)
    if ties == "first":
        counts = torch.where(last == -torch.inf, values.shape[-1], end[1])
        kept = first_ties(values, kept, last, counts)
    return kept


def shortest_prefix(depth: Tensor, masses: Tensor, mass: Tensor) -> Kept:
    """The fewest classes, in order of depth, that hold `mass`; the values are −depth.

    Args:
        depth: (rows, classes) float64 from 0 up, +inf where masked; classes are taken in order
            of it, then of class id.
        masses: (rows, classes) float64 in proportion to the probabilities.
        mass: (rows, 1) in [0, 1].
    """
    total, near = row_sum(masses), whole(-depth)
    if depth.shape[-1] > SORTED_CLASSES:
        reached = _within_reach(depth, masses, total - _tail(total, mass))
        near = gather(near.values, reached & (depth < torch.inf))
        masses = along(masses, near.classes)
    # Equally deep classes can differ in mass, which the kernel for values does not take.
    end = _end(near.values, masses, total, _tail(total, mass))
    return near.only(_prefix(near.values, end, mass, "first"))


def _within_reach(depth: Tensor, masses: Tensor, needed: Tensor) -> Tensor:
    """Which classes can be in the shortest prefix that holds `needed` (rows, 1), and some more."""
    bins = (depth * BINS_PER_NAT).clamp_(max=BINS - 1).long()
    held = masses.new_zeros(depth.shape[0], BINS).scatter_add_(-1, bins, masses).cumsum(dim=-1)
    # The bin after the one that crosses is taken too: its sums are rounded otherwise.
    crossing = (held < needed).sum(dim=-1, keepdim=True) + 1
    return (bins <= crossing) | (crossing >= BINS - 1)
