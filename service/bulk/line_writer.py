"""Answers as JSON lines: one a row, or to a file of lines one a line."""

from pathlib import Path

from mappings.errors import ProbmapError
from mappings.evaluation import Evaluation
from service.bulk.piece import Item, Outcome, Source
from service.bulk.spool import Spool
from service.engine.job import Job
from service.settings import Settings
from service.wire.jsonl import LineExchange

LINES = "lines"


class LineWriter:
    """Writes lines like those of /v1/stream; see service.bulk.writers.Writer."""

    def __init__(self, spool: Spool, source: Source, settings: Settings) -> None:
        self._spool = spool
        self._has_lines = source.has_lines
        self._settings = settings

    def add(self, item: Item, outcome: Outcome) -> None:
        """Writes the answer to a line, or to each row."""
        if isinstance(outcome, ProbmapError):
            parts = self._exchange(item, item.index).failed(outcome, "").parts
            self._spool.append(LINES, [b"".join([*parts, b"\n"])])
            return
        assert isinstance(item.job, Job)
        if self._has_lines:
            self._spool.append(LINES, [self._line(item, item.index, item.job, outcome)])
            return
        for row, answer in enumerate(outcome.split([1] * item.job.rows)):
            line = self._line(item, item.index + row, _row(item.job, row), answer)
            self._spool.append(LINES, [line])

    def finished(self) -> Path:
        """The file of all lines."""
        self._spool.append(LINES, [])
        self._spool.close_files()
        return self._spool.folder / LINES

    def _line(self, item: Item, index: int, job: Job, evaluation: Evaluation) -> bytes:
        parts = self._exchange(item, index).encode(job, evaluation).parts
        return b"".join([*parts, b"\n"])

    def _exchange(self, item: Item, index: int) -> LineExchange:
        exchange = LineExchange(index, self._settings)
        exchange.id = item.id
        return exchange


def _row(job: Job, row: int) -> Job:
    """One row of a job as a job."""
    request = job.request
    lengths = None if job.lengths is None else job.lengths[row : row + 1]
    one = request.model_copy(update={"mapping": request.mapping.take(row, row + 1)})
    return Job(job.logits[row : row + 1], one, lengths, job.output_limit)
