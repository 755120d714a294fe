"""A worker: one thread that computes what waits, on one device."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from mappings.base import Mapping
from mappings.catalogue.softmax import Softmax
from mappings.errors import ProbmapError
from mappings.evaluate import evaluate
from mappings.registry import MAPPINGS
from service.engine.batch import Batch, Entry, Outcome, is_out_of_memory
from service.engine.queue import Queue

TURN_SECONDS = 0.02
"""How long a batch is computed before others that wait get their turn (seconds)."""

IDLE_SECONDS = 0.25
"""How often an idle worker shows that it lives (seconds)."""

IDLE_LOOKS_BEFORE_REST = 4
"""After how many looks in a row that find no work the free memory goes back to the system."""

STILL_SECONDS = 1.5
"""How long a worker may show no movement before the server is not ready (seconds)."""

Deliver = Callable[[Sequence[tuple[Entry, Outcome]], Batch | None], None]
"""Takes what became of jobs, and the batch where it was computed to its end; on any thread."""

log = logging.getLogger("probmap.engine")


class Worker:
    """Computes batches on a device until it is told to end.

    Attributes:
        device: where it computes.
        is_warm: whether it has computed every mapping once.
        beat: when it last showed that it moves (seconds of time.monotonic).
    """

    def __init__(
        self, device: torch.device, queue: Queue, deliver: Deliver, rest: Callable[[], None]
    ) -> None:
        """Prepares the thread; it does not run yet.

        Args:
            device: where to compute.
            queue: where jobs come from.
            deliver: takes what becomes of them.
            rest: is called once in a while without jobs, to give back what is kept for more.
        """
        self.device = device
        self.is_warm = False
        self.beat = time.monotonic()
        self._queue = queue
        self._deliver = deliver
        self._rest = rest
        self._batch: Batch | None = None
        self._is_ending = False
        self._thread = threading.Thread(target=self._run, name=f"worker-{device}", daemon=True)

    def start(self) -> None:
        """Starts the thread; it warms the device up first."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def is_moving(self) -> bool:
        """Whether it lives and has shown a sign of that of late."""
        return self.is_alive and self.still_seconds < STILL_SECONDS

    @property
    def still_seconds(self) -> float:
        """How long ago it last showed that it moves."""
        return time.monotonic() - self.beat

    def end(self) -> Batch | None:
        """Tells it to end, without waiting; returns what it is computing, if anything."""
        self._is_ending = True
        return self._batch

    def join(self, timeout: float) -> bool:
        """Waits for the end (seconds); returns whether it came."""
        self._thread.join(timeout)
        return not self.is_alive

    def _run(self) -> None:
        try:
            if self.device.type == "cuda":
                # A stream of its own: nothing that others do on the device holds it up.
                with torch.cuda.device(self.device), torch.cuda.stream(torch.cuda.Stream()):
                    self._work()
            else:
                self._work()
        # The engine sees that the thread has ended; here is why.
        except BaseException:
            log.exception("the worker on %s failed", self.device)

    def _work(self) -> None:
        for kind in MAPPINGS.values():
            warm_up(kind, self.device)
            self.beat = time.monotonic()
        self.is_warm = True
        idle_looks = 0
        while not self._is_ending:
            self.beat = time.monotonic()
            taken = self._queue.take(IDLE_SECONDS)
            if taken is None:
                idle_looks += 1
                # Once per pause: an idle server has nothing more to give back.
                if idle_looks == IDLE_LOOKS_BEFORE_REST:
                    self._rest()
                continue
            idle_looks = 0
            self._compute(taken if isinstance(taken, Batch) else Batch(taken, self.device))

    def _compute(self, batch: Batch) -> None:
        self._batch = batch
        try:
            outcomes = batch.outcomes() if self._turn(batch) else []
        # Whatever a computation raises is its own end, not the worker's.
        except BaseException as error:  # noqa: BLE001
            self._go_on_without(batch, error)
        else:
            if outcomes:
                self._deliver(outcomes, batch)
        # Not in `finally`: of a worker that dies here, the engine has to know what it had.
        self._batch = None

    def _turn(self, batch: Batch) -> bool:
        """Computes a batch until it is done, or others are to have their turn."""
        until = time.monotonic() + TURN_SECONDS
        while batch.is_wanted and not self._is_ending:
            self.beat = time.monotonic()
            if batch.step():
                return True
            if self._queue and time.monotonic() > until:
                self._queue.put_back(batch)
                return False
        return False

    def _go_on_without(self, batch: Batch, error: BaseException) -> None:
        """Answers what a failed batch cannot, and lines up again what it may."""
        if is_out_of_memory(error) and self.device.type == "cuda":
            torch.cuda.empty_cache()
        elif self.device.type == "cuda" and not isinstance(error, ProbmapError):
            # After some errors nothing works any more on a device: then this ends the worker.
            warm_up(Softmax, self.device)
        rest = batch.without(error)
        if isinstance(rest, list):
            log.info("a batch of %d rows failed and is tried in parts: %r", batch.rows, error)
            self._queue.put_first(rest)
        else:
            self._deliver([(batch.entries[0], rest)], None)


def warm_up(kind: type[Mapping], device: torch.device) -> None:
    """Computes a little with a mapping, so that no request waits for what is slow only once."""
    classes = 8
    required: dict[str, Any] = {
        name: [1.0] * classes if name in kind.per_class_fields() else 0
        for name, field in kind.model_fields.items()
        if field.is_required()
    }
    logits = torch.linspace(-1, 1, classes, dtype=torch.float32).unsqueeze(0)
    evaluate(logits.to(device), kind(**required))
