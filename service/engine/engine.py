"""The engine: takes jobs from the event loop and answers them, whatever happens to the others."""

import asyncio
import logging
from collections.abc import Callable, Sequence

import torch

from service.engine.batch import Batch, Entry, Outcome
from service.engine.devices import devices
from service.engine.job import Completed, Job
from service.engine.queue import Budget, Queue
from service.engine.worker import Worker
from service.errors import NotReady
from service.heap import trim_heap
from service.settings import Settings

WATCH_SECONDS = 0.25
"""How often workers are looked at (seconds)."""

CLOSE_SECONDS = 5.0
"""How long workers get to end what they are computing (seconds)."""

log = logging.getLogger("probmap.engine")

Computed = Callable[[Batch], None]


class WorkerLost(Exception):
    """The worker that computed a job died, or stood still for too long."""


class Engine:
    """Takes jobs and answers them; to be used on one event loop.

    Attributes:
        queue: what waits.
        workers: one for each device.
    """

    def __init__(
        self,
        settings: Settings,
        computed: Computed = lambda batch: None,
        rest: Callable[[], None] = trim_heap,
    ) -> None:
        """Prepares the workers; none runs yet.

        Args:
            settings: devices, budgets and times.
            computed: is told of every batch that is done, on the event loop.
            rest: is called by a worker that has had nothing to do for a while.
        """
        delay = settings.max_delay_ms / 1000
        self.queue = Queue(Budget(settings.max_batch_elements, settings.max_batch_bytes, delay))
        self._computed = computed
        self._rest = rest
        self._stall_seconds = settings.stall_seconds
        self._is_draining = False
        self._arrived: list[Entry] = []
        self._waiting: dict[Entry, asyncio.Future[Completed]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watch: asyncio.Task[None] | None = None
        self.workers = [
            Worker(device, self.queue, self._deliver, rest) for device in devices(settings.device)
        ]
        # By their places: each is replaced once, and what fails again needs a new process.
        self._replaced: set[int] = set()
        self._given_up: set[int] = set()

    @property
    def is_ready(self) -> bool:
        """Whether what is submitted now will be computed."""
        ready = all(worker.is_warm and worker.is_moving for worker in self.workers)
        return ready and not self._is_draining

    @property
    def is_beyond_repair(self) -> bool:
        """Whether a worker is lost that will not be replaced: only a new process helps."""
        return bool(self._given_up)

    @property
    def restarts(self) -> int:
        """How many workers were replaced (a count)."""
        return len(self._replaced)

    def start(self) -> None:
        """Starts the workers, and looks after them from now on."""
        self._loop = asyncio.get_running_loop()
        for worker in self.workers:
            worker.start()
        self._watch = self._loop.create_task(self._look_after())

    async def submit(self, job: Job) -> Completed:
        """Evaluates a job, perhaps together with others; when cancelled, so is the job.

        Raises:
            ProbmapError: the job itself is at fault, or no worker is left.
            WorkerLost: the worker that computed it died, or stood still for too long.
            Exception: whatever else the computation of this job alone raises.
        """
        if len(self._given_up) == len(self.workers):
            raise NotReady.lost()
        assert self._loop is not None
        entry = Entry(job)
        future: asyncio.Future[Completed] = self._loop.create_future()
        self._waiting[entry] = future
        if not self._arrived:
            # At the end of this pass of the loop, so that all that came in it can go together.
            self._loop.call_soon(self._hand_over)
        self._arrived.append(entry)
        try:
            return await future
        except asyncio.CancelledError:
            self.queue.drop(entry)
            raise
        finally:
            del self._waiting[entry]

    def drain(self) -> None:
        """Ends readiness: what is submitted is computed, but no more should come."""
        self._is_draining = True

    def abandon(self) -> None:
        """Answers every job that still waits with NotReady."""
        self.drain()
        stopped = NotReady("the server stopped before this request was computed; ask another one")
        self._settle([(entry, stopped) for entry in self._waiting], None)

    async def close(self) -> bool:
        """Ends the workers; returns whether all of them ended in time."""
        self.abandon()
        if self._watch is not None:
            self._watch.cancel()
        for worker in self.workers:
            worker.end()
        self.queue.close()
        joins = [asyncio.to_thread(worker.join, CLOSE_SECONDS) for worker in self.workers]
        return all(await asyncio.gather(*joins))

    def _hand_over(self) -> None:
        arrived, self._arrived = self._arrived, []
        self.queue.add(arrived)

    def _deliver(self, outcomes: Sequence[tuple[Entry, Outcome]], batch: Batch | None) -> None:
        """Takes outcomes from a worker's thread to the event loop."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._settle, outcomes, batch)

    def _settle(self, outcomes: Sequence[tuple[Entry, Outcome]], batch: Batch | None) -> None:
        if batch is not None:
            self._computed(batch)
        for entry, outcome in outcomes:
            future = self._waiting.get(entry)
            if future is None or future.done():
                continue
            if isinstance(outcome, Completed):
                future.set_result(outcome)
            elif isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                # An exit that a computation asked for must not end the event loop.
                future.set_exception(RuntimeError(f"a computation raised {outcome!r}"))

    async def _look_after(self) -> None:
        while True:
            for place, worker in enumerate(self.workers):
                lost = not worker.is_alive or worker.still_seconds > self._stall_seconds
                if lost and place not in self._given_up:
                    self._replace(place, worker)
            await asyncio.sleep(WATCH_SECONDS)

    def _replace(self, place: int, worker: Worker) -> None:
        """Gives a worker up: answers what it had, and starts another one in its place, once."""
        reason = "stands still" if worker.is_alive else "died"
        log.error("the worker on %s %s", worker.device, reason)
        batch = worker.end()
        if batch is not None:
            error = WorkerLost(f"the worker on {worker.device} {reason}")
            self._settle([(entry, error) for entry in batch.entries], None)
        if place not in self._replaced:
            self._replaced.add(place)
            self.workers[place] = Worker(worker.device, self.queue, self._deliver, self._rest)
            self.workers[place].start()
            log.warning("the worker on %s was replaced", worker.device)
            return
        self._given_up.add(place)
        if len(self._given_up) == len(self.workers):
            self._settle([(entry, NotReady.lost()) for entry in self._waiting], None)


def run(job: Job, device: torch.device) -> Completed:
    """Evaluates one job here and now, without an engine."""
    outcome = run_all([job], device)[0]
    if isinstance(outcome, Completed):
        return outcome
    raise outcome


def run_all(jobs: Sequence[Job], device: torch.device) -> list[Outcome]:
    """Evaluates jobs here and now, those of one batch key together; what became of each."""
    entries = [Entry(job) for job in jobs]
    alike: dict[object, list[Entry]] = {}
    for entry in entries:
        alike.setdefault(entry.key, []).append(entry)
    found: dict[Entry, Outcome] = {}
    waiting = [Batch(group, device) for group in alike.values()]
    while waiting:
        batch = waiting.pop()
        try:
            while not batch.step():
                pass
            found |= batch.outcomes()
        except Exception as error:  # noqa: BLE001 told by `without` what it means
            rest = batch.without(error)
            if isinstance(rest, list):
                waiting += rest
            else:
                found[batch.entries[0]] = rest
    return [found[entry] for entry in entries]
