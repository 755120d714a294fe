"""What a server's work takes on this machine: the numbers that a simulation of it starts from."""

import math
import random
import statistics
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any

import simpy
import torch
import uvloop

from arrivals import Asking, Figures, figures_of, quantile_of
from fleet import Costs, Server
from load import Answer, random_callers, waiting_callers
from processor_time import Threads, machine_seconds
from schemas.read import read_request
from schemas.request import MapRequest
from server import RunningServer, metric
from service.engine.batch import Batch, Entry
from service.engine.job import Job

BATCHES = (1, 2, 4, 8, 16, 32, 64)
"""Rows of the batches that are timed (counts)."""

TURNS = 15
SECONDS = 4.0
WARM_SECONDS = 0.5
"""The beginning of a load, in which callers connect, that is not looked at (seconds)."""

LONE, BUSY = 1, 32
"""Callers under which the server is measured (counts)."""


FEW_CLASSES = 8
"""Classes of a row that takes no kernel any time (a count)."""

WAKE_SECONDS = 3e-5
"""Of the worker, from being told that something waits until it takes it: a few dozen lines."""

WEIGHTS = (0.003, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Weights of the worker that are tried; the interpreter changes hands when the loop has nothing to
do, and else after service.server.SWITCH_SECONDS."""

SIMULATED_SECONDS = 8.0


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
class Measured:
    """A load on a real server.

    Attributes:
        figures: what callers saw.
        host_seconds: processor time of the event loop's thread, a request.
        caller_seconds: processor time of the callers' process, a request.
        compute_seconds: of a batch, by the clock, on average.
        others: processors that neither server nor callers, but others on the machine, kept busy.
        seconds: of every answer, those of the beginning left out.
    """

    figures: Figures
    host_seconds: float
    caller_seconds: float
    compute_seconds: float
    others: float
    seconds: Sequence[float]


@dataclass(frozen=True)
class Calibration:
    """What a simulation needs of this machine.

    Attributes:
        costs: of a server.
        call: of the callers' process, a request (seconds).
        lone: the load of one caller, under which a part of it was measured.
        busy: that of a few.
    """

    costs: Costs
    call: float
    lone: Measured
    busy: Measured


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


@dataclass(frozen=True)
class Probe:
    """A server and what is asked of it."""

    server: RunningServer
    threads: Threads
    workload: Workload

    def waiting(self, callers: int) -> Measured:
        """So many callers, each of whom waits for an answer before the next request."""
        port, request = self.server.port, self.workload.request
        return self._measured(lambda: waiting_callers(port, request, callers, SECONDS))

    def steady(self, rate: float) -> Measured:
        """So many requests a second, at random times."""
        port, request = self.server.port, self.workload.request
        return self._measured(lambda: random_callers(port, request, rate, SECONDS))

    def _measured(self, load: Callable[[], Coroutine[Any, Any, list[Answer]]]) -> Measured:
        before, started = self._counters(), time.perf_counter()
        every = uvloop.run(load())
        seconds = time.perf_counter() - started
        batches, rows, compute, worker, host, own, machine = (
            after - earlier for earlier, after in zip(before, self._counters(), strict=True)
        )
        bad = [one.status for one in every if one.status != 200]
        if bad:
            raise SystemExit(f"the server answered {bad[0]} to {self.workload.name}")
        answers = [one for one in every if WARM_SECONDS <= one.at < SECONDS]
        times = [one.seconds for one in answers]
        rate = len(answers) / (SECONDS - WARM_SECONDS)
        figures = Figures(rate, rows / batches, quantile_of(times, 0.5), quantile_of(times, 0.99))
        count = len(every)
        others = max(machine - worker - host - own, 0.0) / seconds
        return Measured(figures, host / count, own / count, compute / batches, others, times)

    def _counters(self) -> tuple[float, ...]:
        server = self.server
        names = ("batch_rows_count", "batch_rows_sum", "compute_duration_seconds_sum")
        counted = [metric(server, f"probmap_{name}") for name in names]
        own = time.process_time()
        return (*counted, *self.threads.seconds(), own, machine_seconds())


def calibrated(probe: Probe) -> Calibration:
    """Measures what the server's work takes, under one caller and under a few.

    The event loop's time for a request falls as batches grow, since some of it is a batch's: two
    loads tell the two apart. What the worker's time would be with rows of a few classes it spends
    in the interpreter, and the rest beside it. The worker's weight is what makes the simulated
    batches under a few callers as large as the measured ones.
    """
    workload = probe.workload
    taken = batch_times(workload, workload.classes)
    whole, held = line_of(taken), line_of(batch_times(workload, FEW_CLASSES))
    lone, busy = probe.waiting(LONE), probe.waiting(BUSY)
    joined = 1 / busy.figures.batch
    settle = max((lone.host_seconds - busy.host_seconds) / (1 - joined), 0.0)
    each = busy.host_seconds - settle * joined
    mean = statistics.fmean(lone.seconds)
    costs = Costs(
        read=each / 2,
        write=each / 2,
        settle=settle,
        wake=WAKE_SECONDS,
        batch=min(held.batch, whole.batch),
        row=min(held.row, whole.row),
        kernel_batch=max(whole.batch - held.batch, 0.0),
        kernel_row=max(whole.row - held.row, 0.0),
        host_spread=[one / mean for one in lone.seconds],
        worker_spread=[one / statistics.median(times) for times in taken.values() for one in times],
    )
    weighted = [replace(costs, weight=weight) for weight in WEIGHTS]

    def distance(one: Costs) -> float:
        found = simulated(one, busy.caller_seconds, workload, callers=BUSY)
        return abs(math.log(found.batch / busy.figures.batch))

    return Calibration(min(weighted, key=distance), busy.caller_seconds, lone, busy)


def simulated(
    costs: Costs, call: float, workload: Workload, *, callers: int = 0, rate: float = 0.0
) -> Figures:
    """What a simulated server answers to waiting callers, or to requests at random times."""
    env, draw = simpy.Environment(), random.Random(0)
    server = Server(env, draw, costs, classes=workload.classes)
    asking = Asking(env, draw, [server], [], call=call)
    if callers:
        asking.waiting(callers)
    else:
        asking.steady(rate, SIMULATED_SECONDS, tick=0.001)
    env.run(WARM_SECONDS)
    before = len(server.batches)
    env.run(SIMULATED_SECONDS)
    return figures_of(asking, WARM_SECONDS, SIMULATED_SECONDS, server.batches[before:])
