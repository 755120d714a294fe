"""What a row costs a server, by the wire it comes on: processor time, and bytes.

    make bench ONLY=rates

Rows of a vocabulary, 32 to a request, as callers send them who have no time to lose: dense and
sparse answers, in float32 and bfloat16, and through shared memory; and small rows as JSON. Each
thread of the server's is asked for the processor time that it has taken, so that the figures hold
roughly where others keep the processors busy. One thread computes. docs/capacity.md plans with
these; `--load`, `--gbit` and `--price` make the plan yours.
"""

import argparse
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # As the server has it, before torch.

import httpx
import torch
import uvloop
from rich.console import Console
from rich.table import Table
from torch import Tensor
from tritonclient.utils import shared_memory

from load import Callers, binary_request, request_bytes, waiting_callers
from processor_time import Threads
from server import RunningServer, running_server
from wire import oip_body

CLASSES = 128_256
ROWS = 32
"""Of a request (a count)."""

FEW_CLASSES = 1000
CALLERS = 4
SECONDS = 3.0
TARGET = 1_000_000
"""Rows a second that the cores are counted for."""

SUPPORT = ("support_offsets", "support_indices", "support_probabilities")
REGION = "logits"

console = Console(width=120)


@dataclass(frozen=True)
class Way:
    """One way to ask.

    Attributes:
        name: of the wire, and what is answered.
        rows: of a request (a count).
        request: the whole of it, as it goes over the wire.
    """

    name: str
    rows: int
    request: bytes


@dataclass(frozen=True)
class Rate:
    """What a request costs (seconds of one processor; bytes).

    Attributes:
        host: of all threads of the server's but the worker.
        worker: of the worker.
        sent: of the request.
        answered: of the answer.
    """

    way: Way
    host: float
    worker: float
    sent: int
    answered: int

    @property
    def row_seconds(self) -> float:
        """Processor time of a row, all of the server's threads together."""
        return (self.host + self.worker) / self.way.rows


@dataclass(frozen=True)
class Needs:
    """What a plan takes.

    Attributes:
        servers: processes, each of which has a core for its loop and one for its worker (a count).
        bytes: on the wire, both ways (a second).
        links: of the network (a count).
        price: of a million rows.
    """

    servers: int
    bytes: float
    links: int
    price: float


@dataclass(frozen=True)
class Plan:
    """Rows to answer.

    Attributes:
        rows: a second.
        load: the share of what servers, and links, can do that is asked of them.
        gbit: what a link of the network carries each way (Gbit/s).
        price: of a core for an hour.
    """

    rows: float = TARGET
    load: float = 0.7
    gbit: float = 100.0
    price: float = 0.04

    def needs(self, rate: Rate) -> Needs:
        """What the rows take where each costs so much.

        A server's event loop and its worker run beside each other: it can do what the busier of
        the two can, and both their cores are paid for.
        """
        requests = self.rows / rate.way.rows
        servers = requests * max(rate.host, rate.worker) / self.load
        links = 8 * requests * max(rate.sent, rate.answered) / (self.gbit * 1e9 * self.load)
        hours = 2 * servers / self.rows * 1e6 / 3600
        wire = requests * (rate.sent + rate.answered)
        return Needs(math.ceil(servers), wire, math.ceil(links), hours * self.price)


def ways(logits: Tensor) -> list[Way]:
    """What is asked, of rows of a vocabulary."""
    few = [[round(x, 4) for x in row] for row in logits[:, :FEW_CLASSES].tolist()]
    text = {"mapping": "entmax", "outputs": ["support"]}
    rows = len(logits)

    def infer(mapping: str, given: Tensor, *outputs: str, region: str | None = None) -> bytes:
        content, headers = oip_body(given, *outputs, region=region)
        return binary_request(f"/v2/models/{mapping}/infer", content, headers)

    return [
        Way("JSON, sparse, 1 × 1,000", 1, request_bytes("/v1/map", {"logits": few[0], **text})),
        Way("JSON, sparse, 32 × 1,000", rows, request_bytes("/v1/map", {"logits": few, **text})),
        Way("float32, dense", rows, infer("softmax", logits, "probabilities")),
        Way("float32, sparse", rows, infer("entmax", logits, *SUPPORT)),
        Way("bfloat16, sparse", rows, infer("entmax", logits.bfloat16(), *SUPPORT)),
        Way("float32, sparse, 1 row", 1, infer("entmax", logits[:1], *SUPPORT)),
        Way("shared memory, sparse", rows, infer("entmax", logits, *SUPPORT, region=REGION)),
    ]


def rate(server: RunningServer, threads: Threads, way: Way) -> Rate:
    """Asks one way for a while."""

    async def once() -> int:
        callers = Callers(server.port, way.request)
        reply = await callers.call()
        callers.close()
        if reply.status != 200:
            raise SystemExit(f"{way.name}: {reply.status} {reply.body[:300]!r}")
        return len(reply.body)

    answered = uvloop.run(once())
    before = threads.seconds()
    answers = uvloop.run(waiting_callers(server.port, way.request, CALLERS, SECONDS))
    # What is still on its way back is counted where it belongs.
    time.sleep(0.1)
    worker, host = (
        (after - earlier) / len(answers)
        for earlier, after in zip(before, threads.seconds(), strict=True)
    )
    assert all(one.status == 200 for one in answers), way.name
    return Rate(way, host, worker, len(way.request), answered)


@contextmanager
def shared_logits(url: str, logits: Tensor) -> Iterator[None]:
    """The rows in shared memory that the server knows."""
    key = f"probmap-rates-{os.getpid()}"
    region = shared_memory.create_shared_memory_region(REGION, key, logits.nbytes)
    try:
        shared_memory.set_shared_memory_region(region, [logits.numpy()])
        given = {"key": key, "offset": 0, "byte_size": logits.nbytes}
        path = f"{url}/v2/systemsharedmemory/region/{REGION}/register"
        httpx.post(path, json=given).raise_for_status()
        yield
    finally:
        shared_memory.destroy_shared_memory_region(region)


def rates(logits: Tensor, only: str = "") -> list[Rate]:
    """Asks a server of its own one way after the other, all of them or those of a name."""
    flags = ("--allow-shared-memory", "--log-level", "warning")
    with running_server(*flags, OMP_NUM_THREADS="1") as server, shared_logits(server.url, logits):
        threads = Threads(server.process.pid)
        return [rate(server, threads, way) for way in ways(logits) if only in way.name]


def show(found: list[Rate]) -> None:
    """Prints what a row costs."""
    table = Table(title=f"{ROWS} × {CLASSES:,} a request, where nothing else is said")
    for name in ("", "µs a row", "worker's", "rows/s a core", "bytes in", "out"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in found:
        rows, seconds = one.way.rows, one.row_seconds
        figures = (1e6 * seconds, 1e6 * one.worker / rows, 1 / seconds)
        sizes = (one.sent / rows, one.answered / rows)
        table.add_row(one.way.name, *(f"{figure:,.0f}" for figure in (*figures, *sizes)))
    console.print(table)


def show_plan(found: list[Rate], plan: Plan) -> None:
    """Prints what it takes to answer so many rows a second."""
    title = f"{plan.rows:,.0f} rows/s at {plan.load:.0%} of what servers can do"
    table = Table(title=title)
    for name in ("", "servers", "cores", "GB/s", "links", "a million rows"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in found:
        needs = plan.needs(one)
        table.add_row(
            one.way.name,
            f"{needs.servers:,}",
            f"{2 * needs.servers:,}",
            f"{needs.bytes / 1e9:,.1f}",
            f"{needs.links:,}",
            f"{needs.price:.4f}",
        )
    console.print(table)
    console.print(
        f"a link is one of {plan.gbit:g} Gbit/s, filled to the same share; a core costs "
        f"{plan.price:g} an hour"
    )


def vocabulary(rows: int = ROWS, classes: int = CLASSES) -> Tensor:
    """Rows of normal logits, σ = 3."""
    return 3 * torch.randn(rows, classes, generator=torch.Generator().manual_seed(0))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="what a row costs a server")
    for name, value in vars(Plan()).items():
        parser.add_argument(f"--{name}", type=float, default=value)
    wanted = Plan(**vars(parser.parse_args()))
    measured = rates(vocabulary())
    show(measured)
    show_plan(measured, wanted)
