"""Who answers: this process, or a server."""

from collections import deque
from collections.abc import Iterator
from typing import Protocol, TypeAlias

import torch

import probmap_client
from mappings.errors import InvalidRow, ProbmapError
from mappings.evaluation import VALID
from service.bulk.piece import Item, Outcome, Piece
from service.bulk.remote import Refusal, evaluation_of, request_of
from service.engine.engine import run_all
from service.engine.job import Completed, Job

WINDOW = 4
"""Requests that a server has at a time (a count)."""

ANSWER_SECONDS = 600.0
"""The time for an answer of a server, all tries together (seconds)."""

FATAL = (401, 403, 404, 408, 429)
"""Statuses below 500 that say nothing of the request itself."""

Answered: TypeAlias = tuple[Piece, list[Outcome]]


class Evaluator(Protocol):
    """Answers pieces in their order."""

    def answers(self, pieces: Iterator[Piece]) -> Iterator[Answered]:
        """Each piece with what became of its items; reads no more of them than it has room for."""


class Here:
    """Answers in this process."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def answers(self, pieces: Iterator[Piece]) -> Iterator[Answered]:
        """Each piece with what became of its items."""
        for piece in pieces:
            jobs = [item.job for item in piece.items if isinstance(item.job, Job)]
            found: list[Outcome] = []
            for outcome in run_all(jobs, self._device):
                if isinstance(outcome, Completed):
                    found.append(outcome.evaluation)
                elif isinstance(outcome, ProbmapError):
                    found.append(outcome)
                else:
                    raise outcome
            yield piece, _in_place(piece.items, deque(found))


class Server:
    """Has a server answer, some requests at a time."""

    def __init__(self, client: probmap_client.Client) -> None:
        self._client = client

    def answers(self, pieces: Iterator[Piece]) -> Iterator[Answered]:
        """Each piece with what became of its items.

        Raises:
            probmap_client.ProbmapError: the server cannot be reached, or has no room.
        """
        asked: deque[Piece] = deque()
        results = self._client.stream(self._requests(pieces, asked), window=WINDOW, errors="return")
        early = next(results, None)
        while asked:
            piece = asked.popleft()
            found: deque[Outcome] = deque()
            for item in piece.items:
                if isinstance(item.job, Job):
                    assert early is not None
                    found.append(_outcome(item.job, early))
                    early = None
                    if len(found) < _jobs(piece):
                        early = next(results, None)
            yield piece, _in_place(piece.items, found)
            if early is None:
                early = next(results, None)

    def _requests(
        self, pieces: Iterator[Piece], asked: deque[Piece]
    ) -> Iterator[probmap_client.Request[probmap_client.MapResult]]:
        for piece in pieces:
            asked.append(piece)
            for item in piece.items:
                if isinstance(item.job, Job):
                    yield request_of(item.job)


def _jobs(piece: Piece) -> int:
    return sum(isinstance(item.job, Job) for item in piece.items)


def _in_place(items: list[Item], found: deque[Outcome]) -> list[Outcome]:
    """The outcome of each item, given those of the items that could be read."""
    return [found.popleft() if isinstance(item.job, Job) else item.job for item in items]


def _outcome(job: Job, result: probmap_client.MapResult | probmap_client.ProbmapError) -> Outcome:
    if isinstance(result, probmap_client.Refused):
        if result.status in FATAL or result.status >= 500:
            raise result
        return Refusal(result)
    if isinstance(result, probmap_client.ProbmapError):
        raise result
    evaluation = evaluation_of(result)
    if job.request.invalid_rows == "reject":
        texts = enumerate(evaluation.status)
        reasons = {row: text for row, text in texts if text != VALID}
        if reasons:
            return InvalidRow(reasons)
    return evaluation
