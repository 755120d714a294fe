"""A batch: jobs of one batch key, evaluated together, and each given its own rows of the answer."""

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from mappings.errors import InvalidRow, OutputTooLarge
from mappings.evaluate import in_steps, suitable
from mappings.evaluation import VALID, Evaluation
from mappings.parameters import joined
from mappings.wanted import Wanted
from service.engine.job import Completed, Job
from service.errors import OutOfMemory, TooLarge
from service.settings import raises

Outcome = Completed | BaseException
"""What becomes of a job: its answer, or why it has none."""

ALLOCATOR = "DefaultCPUAllocator"
"""What torch's message begins with where the host has no memory left."""


@dataclass(eq=False, slots=True)
class Entry:
    """A job in the engine.

    Attributes:
        job: what is asked.
        submitted: when it came (seconds of time.monotonic).
        key: what it shares with the jobs that it can be computed with.
        is_dropped: whether nobody waits for the answer any more.
    """

    job: Job
    submitted: float = field(default_factory=time.monotonic)
    key: object = field(init=False)
    is_dropped: bool = False

    def __post_init__(self) -> None:
        self.key = self.job.batch_key()


class Batch:
    """Jobs of one batch key on their way through a device.

    Attributes:
        entries: the jobs, in order.
        device: where it is computed.
        at_once: about how many logits are on the device at a time; None: as many as suit it.
        started: when it was made (seconds of time.monotonic).
        seconds: how long it has been computed.
    """

    def __init__(
        self, entries: Sequence[Entry], device: torch.device, at_once: int | None = None
    ) -> None:
        """Prepares the evaluation; nothing is computed yet.

        Args:
            entries: the jobs, in order.
            device: where to compute.
            at_once: about how many logits to have on the device at a time, one row at least;
                None: as many as suit it.
        """
        self.entries = entries
        self.at_once = at_once
        self.device = device
        self.seconds = 0.0
        self.started = time.monotonic()
        self._steps: Generator[int, None, Evaluation] | None = None
        self._evaluation: Evaluation | None = None

    @property
    def rows(self) -> int:
        """The rows of all its jobs (a count)."""
        return sum(entry.job.rows for entry in self.entries)

    @property
    def elements(self) -> int:
        """The logits of all its jobs (a count)."""
        return self.rows * self.entries[0].job.classes

    @property
    def is_wanted(self) -> bool:
        """Whether anybody still waits for one of the answers."""
        return not all(entry.is_dropped for entry in self.entries)

    def step(self) -> bool:
        """Computes some rows; returns whether all are done."""
        started = time.monotonic()
        try:
            if self._steps is None:
                self._steps = self._begun()
            next(self._steps)
        except StopIteration as finished:
            self._evaluation = finished.value
            return True
        finally:
            self.seconds += time.monotonic() - started
        return False

    def outcomes(self) -> list[tuple[Entry, Outcome]]:
        """What becomes of each job, once all rows are done."""
        assert self._evaluation is not None
        parts = self._evaluation.split([entry.job.rows for entry in self.entries])
        return [
            (entry, self._outcome(entry, part))
            for entry, part in zip(self.entries, parts, strict=True)
        ]

    def without(self, error: BaseException) -> "list[Batch] | Outcome":
        """What to do when the batch failed: smaller batches to try, or the only job's outcome."""
        if len(self.entries) > 1:
            half = len(self.entries) // 2
            parts = (self.entries[:half], self.entries[half:])
            return [Batch(part, self.device, self.at_once) for part in parts]
        job = self.entries[0].job
        if isinstance(error, OutputTooLarge):
            return TooLarge(f"{error.detail} ({raises('max_output_elements')})")
        if not is_out_of_memory(error):
            return error
        best = suitable(job.request.mapping, job.wanted.outputs, self.device)
        usual = min(best, job.logits.numel())
        at_once = (self.at_once or usual) // 2
        if at_once < job.classes:
            return OutOfMemory(
                f"the device {self.device} has too little memory for even one of these rows of "
                f"{job.classes:,} classes; ask for fewer outputs, or for shorter rows"
            )
        return [Batch(self.entries, self.device, at_once)]

    def _begun(self) -> Generator[int, None, Evaluation]:
        jobs = [entry.job for entry in self.entries]
        rows = [job.rows for job in jobs]
        chains = zip(*(job.request.processors for job in jobs), strict=True)
        return in_steps(
            _together([job.logits for job in jobs]),
            joined([(job.request.mapping, job.rows) for job in jobs]),
            _wanted([job.wanted for job in jobs], rows),
            processors=[joined(list(zip(chain, rows, strict=True))) for chain in chains],
            invalid_rows="report",
            lengths=_lengths(jobs),
            device=self.device,
            at_once=self.at_once,
        )

    def _outcome(self, entry: Entry, evaluation: Evaluation) -> Outcome:
        if entry.job.request.invalid_rows == "reject":
            status = evaluation.status
            if status.count(VALID) < len(status):
                return InvalidRow({row: text for row, text in enumerate(status) if text != VALID})
        return Completed(evaluation, self.started - entry.submitted, self.seconds)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a computation failed for want of memory."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and ALLOCATOR in str(error)


def _together(tensors: Sequence[Tensor]) -> Tensor:
    """The rows of all, one after the other; a single tensor is used as it is."""
    return tensors[0] if len(tensors) == 1 else torch.cat(list(tensors))


def _wanted(parts: Sequence[Wanted], rows: Sequence[int]) -> Wanted:
    """What all ask for, each with what it gave row by row."""
    first = parts[0]
    if len(parts) == 1:
        return first
    draws = [part.draws for part in parts if part.draws is not None]
    targets = [part.targets.values for part in parts if part.targets is not None]
    vectors = [part.derivatives.vector for part in parts if part.derivatives.vector is not None]
    return replace(
        first,
        draws=joined(list(zip(draws, rows, strict=True))) if draws else None,
        targets=replace(first.targets, values=torch.cat(targets)) if first.targets else None,
        derivatives=replace(first.derivatives, vector=torch.cat(vectors) if vectors else None),
    )


def _lengths(jobs: Sequence[Job]) -> list[int] | None:
    """The classes of each row of all jobs; None: as many as the longest has."""
    if all(job.lengths is None for job in jobs):
        return None
    lengths: list[int] = []
    for job in jobs:
        lengths += [job.classes] * job.rows if job.lengths is None else job.lengths
    return lengths
