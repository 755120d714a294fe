"""Rows a second through one stream, by each of its formats, against single requests.

    make bench ONLY=stream

The same rows as single JSON requests on one connection, as JSON lines, as WebSocket messages, and
as Arrow batches of one row and of many. Clients make their bodies beforehand and do not parse
answers. All ways take turns; a figure is the median of its turns. The machine is shared by client,
server and others: ratios hold, absolute figures do not.
"""

import http.client
import json
import statistics
import threading
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table
from websockets.sync.client import connect

from arrow_client import ArrowClient, fixed, stream_of
from server import RunningServer, running_server

TURNS = 5
MANY = 32
"""Rows of a large batch (a count)."""

SIZES = [(8, 512), (1000, 512), (32_000, 64)]
"""Classes of a row, and how many rows there are (counts)."""

FIELDS = {"mapping": "softmax", "dtype": "float32"}

console = Console()


def requests_of(logits: np.ndarray) -> list[bytes]:
    """A JSON request for each row."""
    rows = [[round(float(x), 4) for x in row] for row in logits]
    return [json.dumps({"logits": row, **FIELDS}).encode() for row in rows]


def batches_of(logits: np.ndarray, rows: int) -> bytes:
    """An Arrow stream of batches of so many rows."""
    parts = [logits[start : start + rows] for start in range(0, len(logits), rows)]
    batches = [pa.record_batch({"logits": fixed(part, pa.float32())}) for part in parts]
    schema = batches[0].schema.with_metadata({"probmap": json.dumps(FIELDS)})
    return stream_of(schema, *batches)


def singly(server: RunningServer, requests: list[bytes]) -> None:
    """Asks for one row after the other."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    for request in requests:
        connection.request("POST", "/v1/map", request, {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.read()
        assert response.status == 200
    connection.close()


def streamed(server: RunningServer, body: bytes, media_type: str) -> bytes:
    """Sends a whole body while its answer is read; returns the end of the answer."""
    with ArrowClient(server, **{"Content-Type": media_type}) as client:

        def send() -> None:
            for start in range(0, len(body), 256 << 10):
                client.write(body[start : start + (256 << 10)])
            client.end()

        sending = threading.Thread(target=send)
        sending.start()
        response, end = client.answer(), b""
        while part := response.read1(256 << 10):
            end = (end + part)[-1000:]
        sending.join()
        return end


def messages(server: RunningServer, requests: list[bytes]) -> None:
    """Sends a message a row while the answers are read."""
    texts = [request.decode() for request in requests]
    with connect(f"ws://127.0.0.1:{server.port}/v1/ws", max_size=None, compression=None) as socket:

        def send() -> None:
            for text in texts:
                socket.send(text)

        sending = threading.Thread(target=send)
        sending.start()
        for _ in texts:
            socket.recv(decode=False)
        sending.join()


def ways(server: RunningServer, classes: int, rows: int) -> dict[str, Callable[[], None]]:
    """What to compare, by name."""
    generator = np.random.default_rng(0)
    logits = 3 * generator.standard_normal((rows, classes), dtype=np.float32)
    requests = requests_of(logits)
    lines = b"\n".join(requests)
    ones, manies = batches_of(logits, 1), batches_of(logits, MANY)

    def as_lines() -> None:
        end = streamed(server, lines, "application/x-ndjson")
        assert b'{"done":true,"lines":%d,"failed":0}' % rows in end, end

    def as_batches(body: bytes) -> None:
        end = streamed(server, body, "application/vnd.apache.arrow.stream")
        assert end.endswith(b"\xff\xff\xff\xff\0\0\0\0"), end

    return {
        "single requests": lambda: singly(server, requests),
        "JSON lines": as_lines,
        "WebSocket": lambda: messages(server, requests),
        "Arrow, 1 row a batch": lambda: as_batches(ones),
        f"Arrow, {MANY} rows a batch": lambda: as_batches(manies),
    }


def show(server: RunningServer, classes: int, rows: int) -> None:
    """Prints the rates of all ways."""
    found = ways(server, classes, rows)
    seconds: dict[str, list[float]] = {name: [] for name in found}
    for turn in range(TURNS + 1):
        for name, way in found.items():
            started = time.perf_counter()
            way()
            # The first turn warms up.
            if turn:
                seconds[name].append(time.perf_counter() - started)
    rates = {name: rows / statistics.median(taken) for name, taken in seconds.items()}
    table = Table(title=f"{rows:,} rows × {classes:,} classes, softmax, float32")
    for name in ("", "rows/s", "of single requests", "of JSON lines"):
        table.add_column(name, justify="right")
    for name, rate in rates.items():
        beside = (rate / rates[other] for other in ("single requests", "JSON lines"))
        table.add_row(name, f"{rate:,.0f}", *(f"{ratio:.2f} ×" for ratio in beside))
    console.print(table)


if __name__ == "__main__":
    with running_server("--log-level", "warning") as default:
        for width, count in SIZES:
            show(default, width, count)
