"""What was asked and computed of each mapping since the start."""

import time
from collections import defaultdict
from dataclasses import dataclass, field

from service.engine.batch import Batch
from service.stages import Progress, StageName

MAX_SIZES = 64
"""Sizes of batches that are counted apart (a count), the first that come."""


@dataclass(slots=True)
class Duration:
    """How often something happened.

    Attributes:
        count: how often.
        ns: the time it took in all (nanoseconds).
    """

    count: int = 0
    ns: int = 0

    def add(self, seconds: float) -> None:
        """Counts once more."""
        self.count += 1
        self.ns += round(seconds * 1e9)


@dataclass(slots=True)
class MappingStatistics:
    """One mapping's.

    Attributes:
        last_answered: when the last request was answered (milliseconds since the epoch).
        rows: of answered requests (a count).
        batches: that were computed (a count).
        success: answered requests, from arrival to the answer, ready to be sent.
        fail: the others that were read or named the mapping, from arrival to the refusal.
        stages: of answered requests.
        batch_sizes: by the rows of a batch, the time it took to compute it.
    """

    last_answered: int = 0
    rows: int = 0
    batches: int = 0
    success: Duration = field(default_factory=Duration)
    fail: Duration = field(default_factory=Duration)
    stages: defaultdict[StageName, Duration] = field(default_factory=lambda: defaultdict(Duration))
    batch_sizes: dict[int, Duration] = field(default_factory=dict)


class Statistics:
    """Every mapping's, whatever the wire; to be used on the event loop alone."""

    def __init__(self) -> None:
        self._by_mapping: defaultdict[str, MappingStatistics] = defaultdict(MappingStatistics)

    def count_batch(self, batch: Batch) -> None:
        """Counts a batch."""
        found = self._by_mapping[batch.entries[0].job.request.mapping.name]
        found.batches += 1
        if batch.rows in found.batch_sizes or len(found.batch_sizes) < MAX_SIZES:
            found.batch_sizes.setdefault(batch.rows, Duration()).add(batch.seconds)

    def count(self, progress: Progress) -> None:
        """Counts a request that is over and was read, whether it was answered or not."""
        asked = progress.asked
        if asked is None:
            return
        found = self._by_mapping[asked.mapping]
        seconds = time.monotonic() - progress.arrived
        if not progress.is_answered:
            found.fail.add(seconds)
            return
        found.last_answered = time.time_ns() // 1_000_000
        found.rows += asked.rows
        found.success.add(seconds)
        for stage in progress.stages:
            found.stages[stage.name].add(stage.seconds)

    def count_failure(self, name: str, seconds: float) -> None:
        """Counts a request to a mapping whose body was never read, or made no sense."""
        self._by_mapping[name].fail.add(seconds)

    def of(self, name: str) -> MappingStatistics:
        """One mapping's."""
        return self._by_mapping[name]
