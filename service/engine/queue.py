"""The queue in front of the workers: oldest first, jobs that can be computed together grouped."""

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from service.engine.batch import Batch, Entry


@dataclass(frozen=True, slots=True)
class Budget:
    """How much may be computed together.

    Attributes:
        elements: the most logits (a count).
        bytes: the most memory that logits and answers take.
        delay: how long a job may wait for others (seconds).
    """

    elements: int
    bytes: int
    delay: float = 0.0


@dataclass(slots=True)
class _Group:
    """Waiting jobs that share a key, oldest first."""

    entries: OrderedDict[Entry, None] = field(default_factory=OrderedDict)
    elements: int = 0


class Queue:
    """Where jobs, and batches that were put back, wait for a worker; for any thread."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.rows = 0
        self._places: OrderedDict[Entry | Batch, None] = OrderedDict()
        self._groups: dict[object, _Group] = {}
        self._changed = threading.Condition()
        self._is_closed = False

    def __len__(self) -> int:
        """Jobs and batches that wait (a count)."""
        return len(self._places)

    def add(self, entries: Sequence[Entry]) -> None:
        """Lines up jobs at the end."""
        with self._changed:
            for entry in entries:
                if entry.is_dropped:
                    continue
                self._places[entry] = None
                group = self._groups.setdefault(entry.key, _Group())
                group.entries[entry] = None
                group.elements += entry.job.logits.numel()
                self.rows += entry.job.rows
            self._changed.notify_all()

    def put_back(self, batch: Batch) -> None:
        """Lines up a batch at the end, to go on later: the others get their turn."""
        with self._changed:
            self._places[batch] = None
            self._changed.notify()

    def put_first(self, batches: Sequence[Batch]) -> None:
        """Lines up batches before all others."""
        with self._changed:
            for batch in reversed(batches):
                self._places[batch] = None
                self._places.move_to_end(batch, last=False)
            self._changed.notify_all()

    def drop(self, entry: Entry) -> None:
        """Takes a job out that nobody waits for any more; one being computed is marked."""
        with self._changed:
            entry.is_dropped = True
            if entry in self._places:
                self._remove([entry], self._groups[entry.key])

    def take(self, timeout: float) -> Batch | list[Entry] | None:
        """The next batch to go on with, or jobs to make one of; None: nothing came in time.

        Args:
            timeout: how long to wait (seconds).
        """
        until = time.monotonic() + timeout
        with self._changed:
            while not self._is_closed:
                ripe, wait = self._ripe(time.monotonic(), until)
                if isinstance(ripe, Batch):
                    del self._places[ripe]
                    return ripe
                if ripe is not None:
                    return self._gathered(self._groups[ripe.key])
                if wait <= 0:
                    break
                self._changed.wait(wait)
            return None

    def close(self) -> list[Entry]:
        """Lets every `take` return at once, from now on; returns the jobs that were waiting."""
        with self._changed:
            self._is_closed = True
            left: list[Entry] = []
            for place in self._places:
                left += place.entries if isinstance(place, Batch) else [place]
            self._places.clear()
            self._groups.clear()
            self.rows = 0
            self._changed.notify_all()
            return left

    def _ripe(self, now: float, until: float) -> tuple[Entry | Batch | None, float]:
        """The first that need not wait for others; else for how long to look again."""
        wait = until - now
        for place in self._places:
            if isinstance(place, Batch):
                return place, 0.0
            left = place.submitted + self.budget.delay - now
            if left <= 0 or self._groups[place.key].elements >= self.budget.elements:
                return place, 0.0
            wait = min(wait, left)
        return None, wait

    def _gathered(self, group: _Group) -> list[Entry]:
        """The oldest jobs of a group, as many as the budget allows and one at least."""
        taken: list[Entry] = []
        elements = size = 0
        for entry in group.entries:
            elements += entry.job.logits.numel()
            size += entry.job.bytes
            if taken and (elements > self.budget.elements or size > self.budget.bytes):
                break
            taken.append(entry)
        self._remove(taken, group)
        return taken

    def _remove(self, entries: Sequence[Entry], group: _Group) -> None:
        for entry in entries:
            del self._places[entry]
            del group.entries[entry]
            group.elements -= entry.job.logits.numel()
            self.rows -= entry.job.rows
        if not group.entries:
            del self._groups[entries[0].key]
