"""A server and its simulation side by side, and then a fleet that only the simulation has.

    make bench ONLY=simulation

First the simulation is given what a request takes on this machine, measured in the same run
(benchmarks/calibration.py): the evaluation of batches in this process, and a server under one
caller, under 32, and under requests at random times. What it then says of other loads stands beside
what a real server did.
Then a fleet of such servers is asked for more than one can do, some of them slow.

All loads take turns, for the same one differs from itself by more than the simulation may: medians
are compared, and the rates that each had are beside them. A load that others put on the machine is
in the measured figures and not in the simulated ones: the table says how much that was.
"""

import argparse
import os
import random
from dataclasses import dataclass

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # As the server has it, before torch.

import simpy
import torch
from rich.console import Console
from rich.table import Table

from arrivals import Asking, quantile_of
from batch_times import Workload
from calibration import (
    BUSY,
    LONE,
    SPARSE,
    Calibration,
    Measured,
    Probe,
    calibrated,
    median_of,
    simulated,
)
from fleet import Choice, Costs, Pauses, Server
from load import binary_request, request_bytes
from processor_time import Threads
from rates import CLASSES, SUPPORT, Rate, rates, vocabulary
from server import running_server
from service.heap import keep_freed_memory
from wire import oip_body

WITHIN = 0.2
"""How far a simulated figure may be from the measured one (a share of it)."""

COLUMNS = {"requests/s": 1.0, "rows a batch": 1.0, "p50, ms": 1e3, "p99, ms": 1e3}
"""What is compared, and by how much to multiply it."""

NAMES = dict(zip(COLUMNS, ("rate", "batch", "median", "p99"), strict=True))

WAITING = (4, 16, 64)
"""Callers of the loads that are foretold (counts)."""

SHARES = (0.4, 0.55)
"""Requests at random times, as shares of what 32 callers got."""

TURNS = 5
"""How often each load is measured; the same load differs by half from one time to the next."""

SERVERS = 32
"""Of the simulated fleet (a count); what is said of a share of its load holds for larger ones."""

FLEET_SECONDS = 6.0
LOADS = (0.5, 0.7, 0.85)
CHOICES: dict[Choice, str] = {"random": "chance", "two": "lesser of two", "least": "fewest of all"}
SLOWNESS = 3.0
"""How many times as long as the others a slow server takes."""

FLEETS: dict[str, tuple[int, Pauses | None]] = {
    "all alike": (0, None),
    "2 of 32 slow": (2, None),
    "pauses": (0, Pauses(every=10.0, seconds=0.3)),
}
"""How many servers are slow, and when each stands still."""

FLEET_WAY = "bfloat16, sparse"

console = Console(width=150)


@dataclass(frozen=True)
class Load:
    """So many callers who wait for their answers, or so many requests a second at random times."""

    callers: int = 0
    rate: float = 0.0

    def __str__(self) -> str:
        return f"{self.rate:.0f}/s" if self.rate else f"{self.callers} callers"


def workloads() -> list[Workload]:
    """What is asked: small rows as text, and rows of two vocabularies as they are."""
    logits = vocabulary(1)
    row = [round(x, 4) for x in logits[0, :1000].tolist()]
    text = request_bytes("/v1/map", {"logits": row, "mapping": "softmax", "outputs": ["entropy"]})
    found = [Workload("softmax, 1,000, JSON", "softmax", 1000, ["entropy"], torch.float64, text)]
    for classes in (32_000, 128_256):
        body = oip_body(logits[:, :classes].contiguous(), *SUPPORT)
        request = binary_request("/v2/models/entmax/infer", *body)
        name = f"entmax, {classes:,}, float32"
        found.append(Workload(name, "entmax", classes, ["support"], torch.float32, request))
    return found


def measure(probe: Probe) -> dict[Load, list[Measured]]:
    """All loads of a workload, in turns."""
    able = probe.waiting(BUSY).figures.rate
    loads = [Load(callers=count) for count in (LONE, BUSY, *WAITING)]
    loads += [Load(rate=share * able) for share in (SPARSE, *SHARES)]
    runs: dict[Load, list[Measured]] = {load: [] for load in loads}
    for _ in range(TURNS):
        for load, found in runs.items():
            found.append(probe.steady(load.rate) if load.rate else probe.waiting(load.callers))
    return runs


def compare(probe: Probe) -> list[tuple[str, bool]]:
    """Prints the loads of one workload; which foretold figures hold."""
    runs = measure(probe)
    lone, busy, *_ = runs
    sparse = next(load for load in runs if load.rate)
    given = calibrated(probe.workload, *(median_of(runs[load]) for load in (lone, busy, sparse)))
    show_costs(probe.workload, given)
    table = Table(title=f"{probe.workload.name}: medians of {TURNS} turns → simulated")
    for name in ("load", "its turns", *COLUMNS, "others"):
        table.add_column(name, justify="right", no_wrap=True)
    held: list[tuple[str, bool]] = []
    for load, turns in runs.items():
        real = median_of(turns)
        said = simulated(
            given.idling if load.rate else given.costs,
            given.call,
            probe.workload,
            callers=load.callers,
            rate=load.rate,
        )
        is_given = load in (lone, busy, sparse)
        texts: list[str] = []
        for column, scale in COLUMNS.items():
            one, two = (getattr(figures, NAMES[column]) * scale for figures in (real.figures, said))
            texts.append(f"{one:,.1f} → {two:,.1f}  {two / one:.2f}")
            # Who comes at a rate is answered at that rate: to foretell it is nothing.
            if not is_given and not (load.rate and column == "requests/s"):
                held.append((column, abs(two / one - 1) <= WITHIN))
        rates = [turn.figures.rate for turn in turns]
        spread = f"{min(rates):,.0f}–{max(rates):,.0f}/s"
        table.add_row(f"{load}{', given' * is_given}", spread, *texts, f"{real.others:.2f}")
    console.print(table)
    return held


def show_costs(workload: Workload, given: Calibration) -> None:
    """Prints what was measured for the simulation."""
    costs = given.costs
    parts = {
        "event loop, a request": costs.read + costs.write,
        "event loop, a batch": costs.settle,
        "worker, a batch": costs.batch + costs.kernel_batch,
        "worker, a row": costs.row + costs.kernel_row,
        "callers, a request": given.call,
    }
    texts = (f"{name} {1e6 * seconds:.0f} µs" for name, seconds in parts.items())
    console.print(f"{workload.name}: {'; '.join(texts)}; weight {costs.weight}")


def show_fit() -> None:
    """Prints the comparisons, and how many of their figures hold."""
    held: list[tuple[str, bool]] = []
    with running_server("--log-level", "warning", OMP_NUM_THREADS="1") as server:
        threads = Threads(server.process.pid)
        for workload in workloads():
            held += compare(Probe(server, threads, workload))
    for column in COLUMNS:
        fits = [fit for name, fit in held if name == column]
        console.print(f"{column}: {sum(fits)} of {len(fits)} foretold within {WITHIN:.0%}")


def fleet_costs(rate: Rate) -> Costs:
    """What requests of so many rows take, each of which fills a batch."""
    half = rate.host / 2
    return Costs(read=half, write=half, kernel_row=rate.worker / rate.way.rows)


def fleet(rate: Rate, load: float, choice: Choice, slow: int, pauses: Pauses | None) -> list[float]:
    """The seconds of requests to a fleet; `load` is the share of what it could do."""
    env, draw = simpy.Environment(), random.Random(0)
    costs = fleet_costs(rate)
    servers = [
        Server(env, draw, costs, CLASSES, slowness=SLOWNESS if place < slow else 1.0, pauses=pauses)
        for place in range(SERVERS)
    ]
    asking = Asking(env, draw, servers, [], choice, rows=rate.way.rows)
    # Loop and worker run beside each other: the slower of the two is what a server can do.
    able = SERVERS / max(rate.host, rate.worker)
    asking.steady(load * able, FLEET_SECONDS)
    env.run(FLEET_SECONDS)
    return [one.seconds for one in asking.calls if one.answered > 1.0]


def show_fleet(rate: Rate) -> None:
    """Prints how long requests take under each way to spread them, with and without stragglers."""
    title = f"{SERVERS} servers, {rate.way.name}, {rate.way.rows} rows a request"
    table = Table(title=f"{title}: p50 / p99, ms")
    table.add_column("load")
    table.add_column("spread by")
    for name in FLEETS:
        table.add_column(name, justify="right", no_wrap=True)
    for load in LOADS:
        for choice in CHOICES:
            texts: list[str] = []
            for slow, pauses in FLEETS.values():
                seconds = fleet(rate, load, choice, slow, pauses)
                median, p99 = (1e3 * quantile_of(seconds, share) for share in (0.5, 0.99))
                texts.append(f"{median:,.0f} / {p99:,.0f}")
            table.add_row(f"{load:.0%}", CHOICES[choice], *texts)
    console.print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="a server beside its simulation; then a fleet")
    parser.add_argument("--only", choices=("fit", "fleet"))
    only = parser.parse_args().only
    keep_freed_memory()
    torch.set_num_threads(1)
    if only != "fleet":
        show_fit()
    if only != "fit":
        show_fleet(rates(vocabulary(), FLEET_WAY)[0])
