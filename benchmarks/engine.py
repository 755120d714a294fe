"""What batching gives, and what overload takes.

    make bench ONLY=engine

Three tables: many callers against one with as many rows, through the engine alone; the mean batch
of 64 callers of a running server; goodput, waiting time and memory of a server under four times
the requests it can answer. The machine is shared: ratios hold, absolute figures do not.
"""

import asyncio
import statistics
import time

import torch
import uvloop
from rich.console import Console
from rich.table import Table

from load import quantile, rate_of, request_bytes, steady_callers, waiting_callers
from schemas.read import read_request
from schemas.request import MapRequest
from server import RunningServer, metric, running_server
from service.engine.engine import Engine
from service.engine.job import Job
from service.heap import keep_freed_memory
from service.settings import Settings

CALLERS = 64
CLASSES = 32_000
REPEATS = 7
REQUESTS = 40
"""What each caller asks in a round (a count)."""
PEAK_SECONDS = 8.0
OVERLOAD_SECONDS = 30.0
OVERLOAD = 4
MAX_ROWS = 64
"""Rows that the overloaded server may hold (a count)."""

console = Console()


def job(mapping: str, rows: int) -> Job:
    """A job of random rows."""
    generator = torch.Generator().manual_seed(rows)
    logits = 3 * torch.randn(rows, CLASSES, generator=generator)
    return Job(logits, read_request(MapRequest, {"mapping": mapping}, widths=[CLASSES] * rows))


async def compare_callers(mapping: str) -> tuple[float, float]:
    """Rows a second of one caller with 64 rows, and of 64 with one: medians, taken in turn."""
    engine = Engine(Settings())
    engine.start()
    while not engine.is_ready:
        await asyncio.sleep(0.01)
    rates: tuple[list[float], list[float]] = ([], [])
    for _ in range(REPEATS):
        for found, callers in zip(rates, (1, CALLERS), strict=True):
            asked = [job(mapping, CALLERS // callers) for _ in range(callers)]
            started = time.perf_counter()
            await asyncio.gather(*(call(engine, one) for one in asked))
            found.append(CALLERS * REQUESTS / (time.perf_counter() - started))
    await engine.close()
    return statistics.median(rates[0]), statistics.median(rates[1])


async def call(engine: Engine, asked: Job) -> None:
    """One caller, who asks again as soon as there is an answer."""
    for _ in range(REQUESTS):
        # A new one each time: what a job works out once is a part of its cost.
        await engine.submit(Job(asked.logits, asked.request))


def show_callers() -> None:
    """Prints what 64 callers reach of the throughput of one."""
    table = Table(title=f"{CALLERS} rows × {CLASSES:,} classes, float32, through the engine")
    for name in ("mapping", "1 caller × 64 rows", "64 callers × 1 row", "ratio", "wanted"):
        table.add_column(name, justify="right")
    for mapping in ("softmax", "sparsemax", "entmax"):
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # the server's loop
            one, many = runner.run(compare_callers(mapping))
        rates = (f"{one:,.0f} rows/s", f"{many:,.0f} rows/s")
        table.add_row(mapping, *rates, f"{many / one:.0%}", "≥ 50 %")
    console.print(table)


def show_batches(server: RunningServer) -> None:
    """Prints the mean batch of 64 callers with a row each, as the server's metrics tell it."""
    table = Table(title=f"{CALLERS} callers × 1 row × 1,000 classes, JSON over HTTP")
    for name in ("mapping", "requests/s", "mean batch (rows)"):
        table.add_column(name, justify="right")
    row = torch.randn(1000, generator=torch.Generator().manual_seed(0)).tolist()
    for mapping in ("softmax", "entmax", "perturb_max"):
        body = {"logits": [[round(x, 4) for x in row]], "mapping": mapping, "outputs": ["entropy"]}
        before = [metric(server, f"probmap_batch_rows_{part}") for part in ("sum", "count")]
        load = waiting_callers(server.port, request_bytes("/v1/map", body), CALLERS, PEAK_SECONDS)
        answers = asyncio.run(load)
        after = [metric(server, f"probmap_batch_rows_{part}") for part in ("sum", "count")]
        mean = (after[0] - before[0]) / (after[1] - before[1])
        table.add_row(mapping, f"{rate_of(answers, 200, PEAK_SECONDS):.0f}", f"{mean:.1f}")
    console.print(table)


def show_overload(server: RunningServer) -> None:
    """Prints what a server does under four times the requests it can answer."""
    row = torch.randn(1000, generator=torch.Generator().manual_seed(0)).tolist()
    body = {"logits": [[round(x, 4) for x in row]], "mapping": "perturb_max"}
    request = request_bytes("/v1/map", body)
    asyncio.run(waiting_callers(server.port, request, MAX_ROWS, 2.0))
    time.sleep(2)
    memory = server.resident_bytes()
    peak = asyncio.run(waiting_callers(server.port, request, MAX_ROWS, PEAK_SECONDS))
    rate = rate_of(peak, 200, PEAK_SECONDS)
    load = asyncio.run(steady_callers(server.port, request, OVERLOAD * rate, OVERLOAD_SECONDS))
    time.sleep(2)
    table = Table(title=f"{OVERLOAD} × overload for {OVERLOAD_SECONDS:.0f} s, perturb_max, normal")
    for name in ("", "at the peak", "overloaded", "ratio"):
        table.add_column(name, justify="right")
    good = rate_of(load, 200, OVERLOAD_SECONDS)
    table.add_row("answered/s", f"{rate:.0f}", f"{good:.0f}", f"{good / rate:.0%}")
    refused = rate_of(load, 429, OVERLOAD_SECONDS)
    table.add_row("refused/s", f"{rate_of(peak, 429, PEAK_SECONDS):.0f}", f"{refused:.0f}", "")
    p99 = [quantile(answers, 200, 0.99) for answers in (peak, load)]
    table.add_row("p99 (s)", f"{p99[0]:.2f}", f"{p99[1]:.2f}", f"{p99[1] / p99[0]:.0%}")
    refusal = quantile(load, 429, 0.99)
    table.add_row("p99 of a refusal (s)", "", f"{refusal:.3f}", "")
    lost = [sum(one.status not in (200, 429) for one in answers) for answers in (peak, load)]
    table.add_row("lost", f"{lost[0]}", f"{lost[1]}", "")
    after = server.resident_bytes()
    table.add_row(
        "memory (MB)", f"{memory / 1e6:.0f}", f"{after / 1e6:.0f}", f"{after / memory:.0%}"
    )
    console.print(table)
    console.print(f"the budget of {MAX_ROWS} rows is {MAX_ROWS / rate:.2f} s of work at the peak")


if __name__ == "__main__":
    keep_freed_memory()
    show_callers()
    with running_server("--log-level", "warning") as default:
        show_batches(default)
    flags = ("--max-inflight-rows", str(MAX_ROWS), "--log-level", "warning")
    with running_server(*flags) as bounded:
        show_overload(bounded)
