"""What a server's work takes on this machine: the numbers that a simulation of it starts from."""

import math
import random
import statistics
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any

import simpy
import uvloop

from arrivals import Asking, Figures, figures_of, quantile_of
from batch_times import Workload, batch_times, line_of
from fleet import Costs, Server
from load import Answer, random_callers, waiting_callers
from processor_time import Threads, machine_seconds
from server import RunningServer, metric

SECONDS = 2.5
WARM_SECONDS = 0.5
"""The beginning of a load, in which callers connect, that is not looked at (seconds)."""

LONE, BUSY = 1, 32
"""Callers under which the server is measured (counts)."""

SPARSE = 0.25
"""Requests at random times under which it is measured, as a share of what `BUSY` callers get."""


FEW_CLASSES = 8
"""Classes of a row that takes no kernel any time (a count)."""

WAKE_SECONDS = 3e-5
"""Of the worker, from being told that something waits until it takes it: a few dozen lines."""

WEIGHTS = (0.0003, 0.001, 0.003, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Weights of the worker that are tried; the interpreter changes hands when the loop has nothing to
do, and else after service.server.SWITCH_SECONDS."""

SIMULATED_SECONDS = 8.0


@dataclass(frozen=True)
class Measured:
    """A load on a real server.

    Attributes:
        figures: what callers saw.
        host_seconds: processor time of the event loop's thread, a request.
        worker_seconds: processor time of the worker's thread, a request.
        caller_seconds: processor time of the callers' process, a request.
        others: processors that neither server nor callers, but others on the machine, kept busy.
        seconds: of every answer, those of the beginning left out.
    """

    figures: Figures
    host_seconds: float
    worker_seconds: float
    caller_seconds: float
    others: float
    seconds: Sequence[float]


@dataclass(frozen=True)
class Calibration:
    """What a simulation needs of this machine.

    Attributes:
        costs: of a server that is never idle for long.
        idling: of one that is, as its processors are slower then.
        call: of the callers' process, a request (seconds).
    """

    costs: Costs
    idling: Costs
    call: float


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
        batches, rows, worker, host, own, machine = (
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
        return Measured(figures, host / count, worker / count, own / count, others, times)

    def _counters(self) -> tuple[float, ...]:
        server = self.server
        counted = [metric(server, f"probmap_batch_rows_{name}") for name in ("count", "sum")]
        own = time.process_time()
        return (*counted, *self.threads.seconds(), own, machine_seconds())


def median_of(runs: Sequence[Measured]) -> Measured:
    """The medians of one load's turns, and all of their answers."""
    figures = Figures(
        **{
            name: statistics.median(getattr(run.figures, name) for run in runs)
            for name in ("rate", "batch", "median", "p99")
        }
    )
    times = ("host_seconds", "worker_seconds", "caller_seconds", "others")
    middle = {name: statistics.median(getattr(run, name) for run in runs) for name in times}
    return Measured(figures, **middle, seconds=[one for run in runs for one in run.seconds])


def calibrated(workload: Workload, lone: Measured, busy: Measured, sparse: Measured) -> Calibration:
    """What the server's work takes, from what it took under one caller, a few, and random times.

    The event loop's time for a request falls as batches grow, since some of it is a batch's: two
    loads tell the two apart. What the worker's time would be with rows of a few classes it spends
    in the interpreter, and the rest beside it. The worker's weight is what makes the simulated
    batches under a few callers as large as the measured ones. Processors that were idle meanwhile
    take longer for the same, cold as they are: how much so the requests at random times show.
    """
    taken = batch_times(workload, workload.classes)
    whole, held = line_of(taken), line_of(batch_times(workload, FEW_CLASSES))
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

    chosen = min(weighted, key=distance)
    rows = sparse.figures.batch
    host = sparse.host_seconds / (each + settle / rows)
    worker = sparse.worker_seconds / (whole.of(rows) / rows)
    idling = slower(chosen, max(host, 1.0), max(worker, 1.0))
    return Calibration(chosen, idling, busy.caller_seconds)


def slower(costs: Costs, host: float, worker: float) -> Costs:
    """Costs of a server whose loop and worker take so many times as long."""
    return replace(
        costs,
        read=costs.read * host,
        write=costs.write * host,
        settle=costs.settle * host,
        batch=costs.batch * worker,
        row=costs.row * worker,
        kernel_batch=costs.kernel_batch * worker,
        kernel_row=costs.kernel_row * worker,
    )


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
