"""Answers a second: this server, a Triton Inference Server and a bare echo, side by side.

    make bench ONLY=serve

The same bytes of the Open Inference Protocol go to both servers, on the same machine, with the
same torch; Triton's models are torch.softmax and the entmax package's entmax15, batched
dynamically. A bare Starlette application that sends the body back is the ceiling of what a server
in Python can do. wrk makes the load, over one, four or sixteen connections that each wait for an
answer before they ask again. Contenders take turns, a few seconds each; a figure is the median of
its rounds, a ratio the median of the rounds' ratios. `scripts/triton.sh` gets Triton and wrk; where
it cannot, only the echo is compared. The figures are also written to benchmarks/out/serve.json.
"""

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

import httpx
from rich.console import Console
from rich.table import Table

from answerers import LARGE, SMALL, Contender, Servers, contenders
from bare_server import bare_server
from server import ROOT, running_server
from wrk import Rate, load

OUT = Path(__file__).parent / "out"
TRITON = OUT / "triton-venv" / "bin" / "python"
START_SECONDS = 120.0

LOADS = ((1, SMALL, 1), (1, SMALL, 16), (1, LARGE, 1), (1, LARGE, 16), (32, LARGE, 4))
"""Rows, classes and connections."""

console = Console(width=110)


@contextmanager
def triton_server() -> Iterator[str]:
    """A Triton Inference Server process on a free port; gives its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Its Python backend looks for this Python's library.
    paths = [sysconfig.get_config_var("LIBDIR"), os.environ.get("LD_LIBRARY_PATH")]
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(filter(None, paths))}
    environment.pop("PYTHONPATH", None)
    command = [str(TRITON), str(ROOT / "benchmarks" / "triton_server.py"), str(port)]
    with (OUT / "triton.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment
        )
        url = f"http://127.0.0.1:{port}"
        try:
            until = time.monotonic() + START_SECONDS
            while not all(is_ready(url, model) for model in ("softmax", "entmax")):
                if process.poll() is not None or time.monotonic() > until:
                    raise SystemExit(f"Triton did not start; see {log.name}")
                time.sleep(0.2)
            yield url
        finally:
            process.communicate()


def is_ready(url: str, model: str) -> bool:
    """Whether a server answers for a model."""
    try:
        return httpx.get(f"{url}/v2/models/{model}/ready").status_code == 200
    except httpx.TransportError:
        return False


def measured(
    found: list[Contender], connections: int, rounds: int, seconds: int
) -> dict[str, list[Rate]]:
    """The rates of everybody, in turns."""
    rates: dict[str, list[Rate]] = {one.name: [] for one in found}
    for _ in range(rounds):
        for one in found:
            rates[one.name].append(load(one.request, connections, seconds))
    return rates


def median(rates: list[Rate], figure: Callable[[Rate], float]) -> float:
    """The median of a figure over the rounds."""
    return statistics.median(map(figure, rates))


def compared(
    one: Contender, rates: dict[str, list[Rate]]
) -> Iterator[tuple[str, float, str, bool]]:
    """What a contender is held against, the ratio, the target and whether it is reached."""
    for target in one.targets:
        if target.other not in rates:
            continue
        pairs = list(zip(rates[one.name], rates[target.other], strict=True))
        faster = statistics.median(a.per_second / b.per_second for a, b in pairs)
        wanted = "" if target.least is None else f"≥ {target.least:g} ×"
        yield f"{target.other}, answers/s", faster, wanted, faster >= (target.least or 0)
        if target.most_p50 is not None:
            share = statistics.median(a.p50 / b.p50 for a, b in pairs)
            yield f"{target.other}, p50", share, "≤ 0.33 ×", share <= target.most_p50


def show(
    title: str, found: list[Contender], rates: dict[str, list[Rate]]
) -> list[dict[str, object]]:
    """Prints what a load came to; returns it."""
    table = Table(title=title)
    for name in ("", "answers/s", "p50, ms", "p99, ms", "wrk", "of", "ratio", "target", ""):
        table.add_column(name, justify="left" if name in ("", "of") else "right")
    lines: list[dict[str, object]] = []
    for one in found:
        own = rates[one.name]
        figures = [
            f"{median(own, lambda rate: rate.per_second):,.0f}",
            f"{1e3 * median(own, lambda rate: rate.p50):.2f}",
            f"{1e3 * median(own, lambda rate: rate.p99):.2f}",
            f"{median(own, lambda rate: rate.load_share):.0%}",
        ]
        against = list(compared(one, rates)) or [("", 0.0, "", True)]
        for place, (other, ratio, wanted, is_reached) in enumerate(against):
            verdict = ("reached" if is_reached else "short") if wanted else ""
            cells = [one.name, *figures] if place == 0 else [""] * 5
            table.add_row(*cells, other, f"{ratio:.2f} ×" if other else "", wanted, verdict)
        ratios = [
            {"of": other, "ratio": ratio, "target": wanted, "is_reached": is_reached}
            for other, ratio, wanted, is_reached in compared(one, rates)
        ]
        lines.append({"name": one.name, "rounds": [asdict(rate) for rate in own], "ratios": ratios})
    console.print(table)
    return lines


def run(servers: Servers, rounds: int, seconds: int, only: str) -> None:
    """Puts every load on everybody."""
    written: dict[str, object] = {}
    for count, classes, connections in LOADS:
        title = f"{count} × {classes:,}, {connections} connections"
        if only not in title:
            continue
        found = contenders(servers, count, classes, connections)
        rates = measured(found, connections, rounds, seconds)
        written[title] = show(title, found, rates)
        (OUT / "serve.json").write_text(json.dumps(written, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3, help="of load, a round and contender")
    parser.add_argument("--only", default="", help="loads whose title holds this text")
    parser.add_argument("--without-triton", action="store_true")
    arguments = parser.parse_args()
    OUT.mkdir(exist_ok=True)
    has_triton = not arguments.without_triton
    if has_triton and subprocess.run([ROOT / "scripts" / "triton.sh"], check=False).returncode:
        console.print("There is no Triton to compare with: only the echo is.")
        has_triton = False
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is not installed, and nothing else here makes the load")
    with ExitStack() as stack:
        triton = stack.enter_context(triton_server()) if has_triton else None
        own = stack.enter_context(running_server())
        address = stack.enter_context(bare_server(socket.AF_INET, ("127.0.0.1", 0), "starlette"))
        servers = Servers(own.url, f"http://127.0.0.1:{address[1]}", triton)
        run(servers, arguments.rounds, arguments.seconds, arguments.only)
