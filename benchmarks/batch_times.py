"""What a batch takes the worker, by its rows, measured in this process."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from schemas.read import read_request
from schemas.request import MapRequest
from service.engine.batch import Batch, Entry
from service.engine.job import Job

BATCHES = (1, 2, 4, 8, 16, 32, 64)
"""Rows of the batches that are timed (counts)."""

TURNS = 15


@dataclass(frozen=True)
class Workload:
    """What is asked again and again.

    Attributes:
        name: what it is called in tables.
        mapping: the mapping's name.
        classes: of every row (a count).
        outputs: what is computed of it.
        dtype: of the logits as they arrive.
        request: the whole request, of one row, as it goes over the wire.
    """

    name: str
    mapping: str
    classes: int
    outputs: Sequence[str]
    dtype: torch.dtype
    request: bytes


@dataclass(frozen=True)
class Line:
    """A batch's time: some, and some for every row (seconds)."""

    batch: float
    row: float

    def of(self, rows: float) -> float:
        """Of a batch of so many rows."""
        return self.batch + self.row * rows


def batch_times(workload: Workload, classes: int) -> dict[int, list[float]]:
    """The times of batches, by their rows; taken in turn.

    As the server's worker does it: jobs of one row each, joined, evaluated and taken apart.
    """
    fields = {"mapping": workload.mapping, "outputs": list(workload.outputs)}
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(max(BATCHES), classes, generator=generator)
    rows = logits.to(workload.dtype).split(1)
    taken: dict[int, list[float]] = {count: [] for count in BATCHES}
    for turn in range(TURNS + 1):
        for count, times in taken.items():
            request = read_request(MapRequest, fields, widths=[classes])
            batch = Batch([Entry(Job(row, request)) for row in rows[:count]], torch.device("cpu"))
            started = time.perf_counter()
            while not batch.step():
                pass
            batch.outcomes()
            # The first of each warms up.
            if turn:
                times.append(time.perf_counter() - started)
    return taken


def line_of(taken: dict[int, list[float]]) -> Line:
    """The line nearest to the medians."""
    medians = {count: statistics.median(times) for count, times in taken.items()}
    row, batch = statistics.linear_regression(list(medians), list(medians.values()))
    return Line(max(batch, 0.0), max(row, 0.0))
