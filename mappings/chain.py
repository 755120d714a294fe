"""Logits on their way through the processors to the mapping, and the rows that fall out."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from mappings.base import Mapping
from mappings.compact import Kept, named, spread, whole
from mappings.parameters import Row
from mappings.processor import Processor
from mappings.rows import maximum


@dataclass(frozen=True, slots=True)
class Part:
    """Some rows at the end of the chain.

    Attributes:
        start: the first row's place in the chain.
        logits: (rows, kept) the mapping's candidates, −inf where masked or padded.
        classes: (rows, kept) class ids, ascending, −1 where padded; None: all in order.
        given: what the mapping was given, before it named its candidates.
        slope: (rows, 1 or classes) how they move with the caller's; None: by as much.
        bad: places of rows without an answer, among these.
    """

    start: int
    logits: Tensor
    classes: Tensor | None
    given: Kept
    slope: Tensor | None
    bad: list[int]


class Chain:
    """Logits on their way to the mapping: fewer and fewer classes a row.

    A row without an answer goes on as a harmless single class; `bad` says why.
    """

    def __init__(self, logits: Tensor, *, sloped: bool) -> None:
        """Begins with (rows, classes) logits, float32 or float64, contiguous.

        Args:
            logits: what the caller gave.
            sloped: whether somebody asks how the logits move.
        """
        self.logits = logits
        self.classes: Tensor | None = None
        self.given = whole(logits)
        self.width = logits.shape[-1]
        self.slope: Tensor | None = None
        self.sloped = sloped
        self.bad: dict[int, str] = {}
        self._drop_unanswerable("")

    def step(self, processor: Processor, row: Row) -> None:
        """Takes one step of the chain."""
        if processor.by_class:
            self._widen()
        slope = processor.slope(self.logits, row) if self.sloped else None
        if slope is not None:
            if slope.shape[-1] > 1:
                slope = spread(slope, self.classes, self.width, 1.0)
            self.slope = slope if self.slope is None else self.slope * slope
        kept = processor.kept(self.logits, row)
        if kept is None:
            self.logits = processor.apply(self.logits, row)
        else:
            self._keep(kept)
        self._drop_unanswerable(f" after {processor.name}")

    def arrive(self, mapping: Mapping, row: Row) -> None:
        """Drops the rows that the mapping has no answer for, and the classes that get nothing."""
        if mapping.by_class:
            self._widen()
        undefined = mapping.undefined_rows(self.logits, row)
        if undefined is not None and bool(undefined.any()):
            places = undefined.nonzero().flatten().tolist()
            self._drop(dict.fromkeys(places, mapping.undefined))
        self.given = Kept(self.logits, self.classes)
        kept = mapping.candidates(self.logits, row)
        if kept is not None:
            self._keep(kept)

    def parts(self, elements: int) -> Iterator[Part]:
        """The rows, some at a time, of about so many logits each; one row at least."""
        rows, width = self.logits.shape
        step = max(1, elements // width)
        for start in range(0, rows, step):
            stop = start + step
            logits, classes = self.logits[start:stop], self.classes
            if classes is not None:
                classes = classes[start:stop]
                if step < rows:
                    longest = max(1, int((classes >= 0).sum(-1).max()))
                    logits, classes = logits[:, :longest], classes[:, :longest]
            yield Part(
                start,
                logits.contiguous(),
                classes,
                self.given.rows(start, stop),
                None if self.slope is None else self.slope[start:stop],
                [place - start for place in self.bad if start <= place < stop],
            )

    def _keep(self, kept: Kept) -> None:
        """Goes on with what was kept of the classes that are left."""
        if self.classes is None:
            self.classes = kept.classes
        elif kept.classes is not None:
            self.classes = named(kept.classes, self.classes)
        self.logits = kept.values

    def _widen(self) -> None:
        """Goes on with every class in its place."""
        self.logits = spread(self.logits, self.classes, self.width, -torch.inf)
        self.classes = None

    def _drop_unanswerable(self, when: str) -> None:
        sound = maximum(self.logits).isfinite().squeeze(-1)
        if not bool(sound.all()):
            places = (~sound).nonzero().flatten()
            broken = self.logits[places]
            if self.classes is not None:
                broken = spread(broken, self.classes[places], self.width, -torch.inf)
            found = zip(places.tolist(), _reasons(broken), strict=True)
            self._drop({place: reason + when for place, reason in found})

    def _drop(self, found: dict[int, str]) -> None:
        """Goes on with a harmless single class where a row has no answer."""
        self.bad = found | self.bad
        rows = list(found)
        mended = self.logits.clone()
        mended[rows] = -torch.inf
        mended[rows, 0] = 1.0
        self.logits = mended
        if self.classes is not None:
            self.classes[rows, 0] = 0


def _reasons(logits: Tensor) -> list[str]:
    """Why each of these rows has no answer."""
    wrong = logits.isnan()
    infinite = ~wrong.any(dim=-1, keepdim=True) & (logits == torch.inf)
    marks = (wrong | infinite).to(torch.int8)
    first = marks.argmax(dim=-1)
    # NaN compares with nothing, so what is marked and equal to itself is +inf.
    kinds = logits.gather(-1, first.unsqueeze(-1)).isnan().squeeze(-1).tolist()
    return [
        f"{'nan' if kind else '+inf'} at class {place}" if marked else "no unmasked class"
        for marked, kind, place in zip(
            marks.any(dim=-1).tolist(), kinds, first.tolist(), strict=True
        )
    ]
