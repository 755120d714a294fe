"""What was computed of each mapping since the start: Triton's statistics extension."""

import time
from collections import defaultdict
from dataclasses import asdict, dataclass, field

from service.engine.batch import Batch
from service.stages import Progress, StageName

MAX_SIZES = 64
"""Sizes of batches that are counted apart (a count), the first that come."""


NAMES: dict[StageName, str] = {
    "decode": "compute_input",
    "queue": "queue",
    "compute": "compute_infer",
    "encode": "compute_output",
}
"""What the extension calls the stages of an answer."""


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
class InferenceStatistics:
    """Requests, and the stages on the way to their answers.

    Attributes:
        success: from arrival to the answer, ready to be sent.
        fail: from arrival to the refusal.
        queue: waiting to be computed.
        compute_input: reading the request.
        compute_infer: computing the batch that it was in.
        compute_output: writing the answer.
        cache_hit: nothing: there is no cache.
    """

    success: Duration = field(default_factory=Duration)
    fail: Duration = field(default_factory=Duration)
    queue: Duration = field(default_factory=Duration)
    compute_input: Duration = field(default_factory=Duration)
    compute_infer: Duration = field(default_factory=Duration)
    compute_output: Duration = field(default_factory=Duration)
    cache_hit: Duration = field(default_factory=Duration)


@dataclass(slots=True)
class MappingStatistics:
    """One mapping's.

    Attributes:
        last_inference: when the last request was answered (milliseconds since the epoch).
        inference_count: rows of answered requests (a count).
        execution_count: batches computed (a count).
        inference_stats: by stage.
        batches: by their rows, the time it took to compute them.
    """

    last_inference: int = 0
    inference_count: int = 0
    execution_count: int = 0
    inference_stats: InferenceStatistics = field(default_factory=InferenceStatistics)
    batches: dict[int, Duration] = field(default_factory=dict)


class Statistics:
    """Every mapping's, whatever the wire; to be used on the event loop alone."""

    def __init__(self) -> None:
        self._by_mapping: defaultdict[str, MappingStatistics] = defaultdict(MappingStatistics)

    def count_batch(self, batch: Batch) -> None:
        """Counts a batch."""
        found = self._by_mapping[batch.entries[0].job.request.mapping.name]
        found.execution_count += 1
        if batch.rows in found.batches or len(found.batches) < MAX_SIZES:
            found.batches.setdefault(batch.rows, Duration()).add(batch.seconds)

    def count(self, progress: Progress) -> None:
        """Counts a request that is over, whether it was answered or not."""
        job = progress.job
        if job is None:
            return
        found = self._by_mapping[job.request.mapping.name]
        seconds = time.monotonic() - progress.arrived
        if not progress.is_answered:
            found.inference_stats.fail.add(seconds)
            return
        found.last_inference = time.time_ns() // 1_000_000
        found.inference_count += job.rows
        found.inference_stats.success.add(seconds)
        for stage in progress.stages:
            getattr(found.inference_stats, NAMES[stage.name]).add(stage.seconds)

    def count_failure(self, name: str, seconds: float) -> None:
        """Counts a request that was not even understood."""
        self._by_mapping[name].inference_stats.fail.add(seconds)

    def of(self, name: str, version: str) -> dict[str, object]:
        """One mapping's, as the extension shows them."""
        found = self._by_mapping[name]
        return {
            "name": name,
            "version": version,
            "last_inference": found.last_inference,
            "inference_count": found.inference_count,
            "execution_count": found.execution_count,
            "inference_stats": asdict(found.inference_stats),
            "batch_stats": [
                {
                    "batch_size": rows,
                    "compute_input": {"count": 0, "ns": 0},
                    "compute_infer": asdict(spent),
                    "compute_output": {"count": 0, "ns": 0},
                }
                for rows, spent in sorted(found.batches.items())
            ],
        }
