"""Logits that are in memory already."""

from collections.abc import Iterator

from service.bulk.piece import AskedOfRows, Item, Piece
from service.engine.job import Job


class JobSource:
    """One job, in one piece; see service.bulk.piece.Source."""

    has_lines = False

    def __init__(self, job: Job) -> None:
        self._job = job
        self.rows: int | None = job.rows
        classes = job.classes if job.lengths is None else None
        self.asked = AskedOfRows(job.request, job.wanted.dtype, classes, self._by_row())

    def pieces(self, first: int) -> Iterator[Piece]:
        """The piece, unless it is done."""
        if first == 0:
            yield Piece([Item(0, None, self._job)], 1.0)

    def beginning(self, rows: int | None) -> Job:
        """The whole job: who gave it as text has little of it."""
        return self._job

    def _by_row(self) -> tuple[str, ...]:
        mapping = self._job.request.mapping
        names = mapping.per_row_fields()
        return tuple(name for name in names if isinstance(getattr(mapping, name), list))
