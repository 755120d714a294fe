"""A whole file, mapped to another."""

import time
from pathlib import Path
from typing import Any

from mappings.errors import InvalidRow, ProbmapError
from mappings.evaluation import VALID
from service.bulk.evaluator import Evaluator
from service.bulk.formats import writer_of
from service.bulk.piece import Item, Outcome, Source, rows_of
from service.bulk.progress import progress
from service.bulk.spool import Spool
from service.errors import STATUS
from service.settings import Settings


class Unfinished(Exception):
    """Something ended the run from outside; what is done is kept, and the next run goes on.

    Attributes:
        reason: what ended it.
        kept: the rows that need not be computed again (a count).
    """

    def __init__(self, reason: BaseException, kept: int) -> None:
        super().__init__(reason, kept)
        self.reason = reason
        self.kept = kept


def map_file(
    source: Source,
    evaluator: Evaluator,
    output: Path,
    run: dict[str, Any],
    settings: Settings,
    *,
    restart: bool,
) -> int:
    """Writes the answers to a source, a piece at a time; goes on where the same run stopped.

    Args:
        source: the input.
        evaluator: who answers.
        output: what to write; its suffix says how. It is not there before it is whole.
        run: what tells this run from any other.
        settings: the limits.
        restart: whether to forget what an interrupted run left.

    Returns:
        The rows, or the lines, that have no answer (a count).

    Raises:
        ProbmapError: the input asks for what cannot be.
        ValueError: as ProbmapError, or the output cannot hold the answers.
        Unfinished: the run was ended, and something of it is kept.
        OSError: a file cannot be read or written, and nothing is kept.
    """
    if output.is_dir():
        raise ValueError(f"{output} is a folder; --output should be a file")
    with Spool(output, run, restart=restart) as spool:
        try:
            return _map(source, evaluator, spool, output.suffix, settings, output.name)
        except Exception as error:
            if isinstance(error, ValueError) or not _is_passing(error):
                # The next run would end at the same place.
                spool.discard()
                raise
            if spool.done:
                raise Unfinished(error, spool.rows) from error
            raise
        except KeyboardInterrupt as error:
            raise Unfinished(error, spool.rows) from error


def _map(
    source: Source,
    evaluator: Evaluator,
    spool: Spool,
    suffix: str,
    settings: Settings,
    name: str,
) -> int:
    writer = writer_of(suffix, spool, source, settings)
    started, before = time.monotonic(), spool.rows
    with progress(name) as show:
        for piece, outcomes in evaluator.answers(source.pieces(spool.done)):
            rows = failed = 0
            for item, outcome in zip(piece.items, outcomes, strict=True):
                if isinstance(outcome, ProbmapError) and not source.has_lines:
                    raise _placed(outcome, item)
                writer.add(item, outcome)
                rows += rows_of(item)
                failed += _failed(outcome)
            spool.commit(rows, failed)
            seconds = max(1e-9, time.monotonic() - started)
            show(spool.rows, (spool.rows - before) / seconds, piece.fraction)
    failed = spool.failed
    spool.finish(writer.finished())
    return failed


def _failed(outcome: Outcome) -> int:
    """How many rows, or lines, of an item have no answer (a count)."""
    if isinstance(outcome, ProbmapError):
        return 1
    return sum(text != VALID for text in outcome.status)


def _placed(error: ProbmapError, item: Item) -> ProbmapError:
    """The error with its rows counted from the beginning of the input."""
    if isinstance(error, InvalidRow):
        return InvalidRow({item.index + row: reason for row, reason in error.reasons.items()})
    error.detail = f"of the rows from {item.index:,} on: {error.detail}"
    return error


def _is_passing(error: Exception) -> bool:
    """Whether the next run may not meet the same error."""
    return not isinstance(error, ProbmapError) or STATUS.get(error.code, 500) >= 500
