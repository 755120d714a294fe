"""Exact support sets in compressed rows (CSR), most probable class first."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from mappings.compact import gather
from mappings.places import places
from mappings.ranking import ranked
from mappings.rows import row_sum


@dataclass(frozen=True, slots=True)
class Support:
    """The classes with probability above 0 of every row, one row after the other.

    Row i lies at `offsets[i]:offsets[i + 1]` of the flat tensors, in order of descending
    probability, ties by lower class id.

    Attributes:
        offsets: (rows + 1,) int64.
        indices: (entries,) int32 class ids.
        probabilities: (entries,) in the output's dtype.
        log_probabilities: (entries,) in the output's dtype.
        sizes: (rows,) int64, the whole support's size, also where it was cut.
        mass: (rows,) the probability of the classes listed; 1 unless the list was cut.
    """

    offsets: Tensor
    indices: Tensor
    probabilities: Tensor
    log_probabilities: Tensor
    sizes: Tensor
    mass: Tensor

    @property
    def truncated(self) -> Tensor:
        """(rows,) whether a limit left out part of the row's support."""
        return self.offsets.diff() < self.sizes

    def lists(self) -> list[Tensor]:
        """The class ids of each row."""
        return list(self.indices.split(self.offsets.diff().tolist()))

    def to(self, device: torch.device) -> "Support":
        """These supports on a device."""
        moved = {entry.name: getattr(self, entry.name).to(device) for entry in fields(self)}
        return Support(**moved)

    def rows(self, start: int, stop: int) -> "Support":
        """The supports of rows start (included) to stop (excluded)."""
        first, last = int(self.offsets[start]), int(self.offsets[stop])
        return Support(
            self.offsets[start : stop + 1] - first,
            self.indices[first:last],
            self.probabilities[first:last],
            self.log_probabilities[first:last],
            self.sizes[start:stop],
            self.mass[start:stop],
        )


def supports(
    probabilities: Tensor, logs: Tensor, classes: Tensor | None, limit: int | None
) -> Support:
    """Lists what is above 0.

    Args:
        probabilities: (rows, kept) in the output's dtype.
        logs: (rows, kept) log-probabilities.
        classes: (rows, kept) ascending class ids, −1 where padded; None: all in order.
        limit: at most so many classes a row, the most probable; None: all.
    """
    inside = probabilities > 0
    sizes = inside.sum(-1)
    width = max(1, int(sizes.max())) if len(sizes) else 1
    picked = None
    if 2 * width < probabilities.shape[-1]:
        fewer = gather(probabilities, inside)
        probabilities, picked = fewer.values, fewer.classes
    width = width if limit is None else min(width, limit)
    ordered, source = ranked(probabilities, width)
    source = source if picked is None else picked.clamp_min(0).gather(-1, source)
    counts = sizes.clamp(max=width)
    listed = torch.arange(width, device=counts.device) < counts.unsqueeze(-1)
    ids = source if classes is None else classes.gather(-1, source)
    chosen = places(listed)
    return Support(
        torch.cat([counts.new_zeros(1), counts.cumsum(0)]),
        ids.flatten()[chosen].int(),
        ordered.flatten()[chosen],
        logs.gather(-1, source).flatten()[chosen].to(ordered.dtype),
        sizes,
        row_sum(torch.where(listed, ordered, 0).double()).squeeze(-1),
    )


def joined_supports(parts: Sequence[Support]) -> Support:
    """One Support of the rows of several; of no rows when there are none."""
    if not parts:
        none = torch.zeros(0, 1, dtype=torch.float64)
        parts = [supports(none, none, None, None)]
    starts = torch.tensor([0, *(int(part.offsets[-1]) for part in parts)]).cumsum(0).tolist()
    offsets = [parts[0].offsets[:1]]
    offsets += [part.offsets[1:] + start for part, start in zip(parts, starts, strict=False)]
    return Support(
        torch.cat(offsets),
        torch.cat([part.indices for part in parts]),
        torch.cat([part.probabilities for part in parts]),
        torch.cat([part.log_probabilities for part in parts]),
        torch.cat([part.sizes for part in parts]),
        torch.cat([part.mass for part in parts]),
    )
