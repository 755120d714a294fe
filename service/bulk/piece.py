"""What flows from a source to a writer: pieces of the input, and what became of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import torch

from mappings.errors import ProbmapError
from mappings.evaluation import Evaluation
from schemas.request import Request
from service.engine.job import Job
from service.wire.asked import Asked

PIECE_NUMBERS = 1 << 21
"""About how many logits, or numbers of their answer, are held at a time (a count)."""

PIECE_ROWS = 1 << 13
"""The most rows that are held at a time (a count)."""

Outcome: TypeAlias = Evaluation | ProbmapError
"""The answer to an item, or why there is none."""


@dataclass(frozen=True, slots=True)
class Item:
    """One request of the input.

    Attributes:
        index: the place of its first row, or of its line, in the input.
        id: what a line calls itself; None: nothing.
        job: what to compute; or why that cannot be known.
    """

    index: int
    id: str | int | None
    job: Job | ProbmapError


@dataclass(frozen=True, slots=True)
class Piece:
    """Some of the input, which is answered and written together.

    Attributes:
        items: its requests, in order.
        fraction: how much of the whole input lies before its end, in [0, 1].
    """

    items: list[Item]
    fraction: float


@dataclass(frozen=True, slots=True)
class AskedOfRows:
    """What all rows are asked; see service.wire.asked.Asked."""

    request: Request
    dtype: torch.dtype
    classes: int | None
    by_row: tuple[str, ...] = ()


class Source(Protocol):
    """An input that is read from its beginning, in pieces that are the same every time."""

    @property
    def asked(self) -> Asked:
        """What all its rows are asked."""

    @property
    def rows(self) -> int | None:
        """How many it has (a count); None: not known before its end."""

    @property
    def has_lines(self) -> bool:
        """Whether an item is a line, whose failure is told in its place."""

    def pieces(self, first: int) -> Iterator[Piece]:
        """The pieces from the one at place `first` on.

        Raises:
            ProbmapError: the input asks for what cannot be.
            OSError: it cannot be read.
        """

    def beginning(self, rows: int | None) -> Job:
        """The first rows as one job, not more than so many; None: all of them."""


def rows_at_once(request: Request, classes: int, wished: int | None) -> int:
    """How many rows of so many classes make a piece (a count).

    Args:
        request: what is asked of them.
        classes: of a row (a count).
        wished: what the user says; None: as many as take little memory.
    """
    if wished is not None:
        return wished
    numbers = max(classes, request.answer_numbers(1, classes))
    return max(1, min(PIECE_ROWS, PIECE_NUMBERS // numbers))


@contextmanager
def of_rows(start: int, stop: int) -> Iterator[None]:
    """Adds to an error which rows of the input, start (included) to stop (excluded), it is of."""
    try:
        yield
    except ProbmapError as error:
        error.detail = f"of the rows {start:,} to {stop - 1:,}: {error.detail}"
        raise


def rows_of(item: Item) -> int:
    """The rows of an item; a request that cannot be read counts as one."""
    return item.job.rows if isinstance(item.job, Job) else 1
