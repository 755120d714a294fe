"""What the wires cost: requests to the server against bare ASGI servers of the same bytes.

    make bench ONLY=wire

The same logits as JSON, over the Open Inference Protocol in float32 and bfloat16, as safetensors,
through shared memory and over a Unix socket. Beside each is what a bare server under uvicorn takes
that sends the same request back (or, where the answer is a few classes, that only reads it), on
the same kind of socket, and the evaluation alone, in this process. All take turns; a time is the
median of its turns, a ratio the median of the turns' ratios. The machine is shared by client,
server and others: ratios hold, absolute figures do not.
"""

import json
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # As the server has it, before torch.

import httpx
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from tritonclient.utils import shared_memory

from bare_server import bare_server
from mappings.evaluate import evaluate
from mappings.evaluation import Output
from mappings.registry import MAPPINGS
from oip_bodies import HEADER
from safetensors_bodies import MEDIA_TYPE
from safetensors_bodies import body as safetensors_body
from server import running_server

CLASSES = 128_256
ROWS = (1, 32)
TURNS = 21
JSON_TURNS = 5
"""Turns of JSON, whose requests take so much longer."""

ROOM = 128 << 20
"""What the longest answer takes at most (bytes)."""

REGION = "logits"

console = Console(width=100)


class Caller:
    """A connection, kept, whose answers are received into one buffer and not looked at."""

    def __init__(self, address: tuple[str, int] | str) -> None:
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self._socket = socket.socket(family)
        self._socket.connect(address)
        self._room = memoryview(bytearray(ROOM))
        if family == socket.AF_INET:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(self, path: str, body: bytes, headers: dict[str, str]) -> float:
        """Makes a request; returns the seconds until the end of its answer."""
        fields = {"Host": "localhost", "Content-Length": str(len(body)), **headers}
        lines = [f"POST {path} HTTP/1.1", *(f"{name}: {text}" for name, text in fields.items())]
        started = time.perf_counter()
        self._socket.sendall("\r\n".join([*lines, "\r\n"]).encode())
        self._socket.sendall(body)
        got, end = 0, -1
        while end < 0:
            got += self._socket.recv_into(self._room[got:])
            end = bytes(self._room[: min(got, 4096)]).find(b"\r\n\r\n")
        head = bytes(self._room[:end]).lower()
        assert head.startswith(b"http/1.1 200"), bytes(self._room[:got])
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        while got < end + 4 + length:
            got += self._socket.recv_into(self._room[got:])
        return time.perf_counter() - started


@dataclass(frozen=True)
class Way:
    """One way to ask for the distributions of some rows, and what to hold it against.

    Attributes:
        name: of the wire, and what is asked for.
        request: asks the server; returns seconds.
        beside: does what the time is held against; returns seconds.
        against: what that is.
        alone: the evaluation in this process; returns seconds.
        most: the ratio that it should have at the most; None: none is set.
    """

    name: str
    request: Callable[[], float]
    beside: Callable[[], float]
    against: str
    alone: Callable[[], float]
    turns: int = TURNS
    most: float | None = None


def evaluation_of(logits: Tensor, mapping: str, output: Output) -> Callable[[], float]:
    """Evaluates in this process; returns seconds."""
    solver = MAPPINGS[mapping](name=mapping)

    def timed() -> float:
        started = time.perf_counter()
        evaluate(logits, solver, outputs=(output,))
        return time.perf_counter() - started

    return timed


def oip_body(
    logits: Tensor, *outputs: str, region: str | None = None
) -> tuple[bytes, dict[str, str]]:
    """A body of the Open Inference Protocol and its header; binary answers are asked for."""
    datatype = {torch.float32: "FP32", torch.bfloat16: "BF16"}[logits.dtype]
    size: dict[str, Any] = {"binary_data_size": logits.nbytes}
    if region is not None:
        size = {"shared_memory_region": region, "shared_memory_byte_size": logits.nbytes}
    entry = {"name": "logits", "datatype": datatype, "shape": list(logits.shape)}
    head = json.dumps(
        {
            "inputs": [entry | {"parameters": size}],
            "outputs": [{"name": name} for name in outputs],
            "parameters": {"binary_data_output": True},
        }
    ).encode()
    tensor = b"" if region is not None else logits.view(torch.uint8).numpy().tobytes()
    return head + tensor, {HEADER: str(len(head))}


@dataclass(frozen=True)
class Callers:
    """Connections to the server and to the bare server, by TCP or by Unix socket."""

    server: Caller
    bare: Caller

    def echoed(self, path: str, body: bytes, headers: dict[str, str]) -> dict[str, Any]:
        """The request, and the same bytes there and back."""
        return {
            "request": lambda: self.server.call(path, body, headers),
            "beside": lambda: self.bare.call("/echo", body, {}),
            "against": "echo",
        }

    def read(self, path: str, body: bytes, headers: dict[str, str]) -> dict[str, Any]:
        """The request, and the same bytes there."""
        beside = {"beside": lambda: self.bare.call("/read", body, {}), "against": "only read"}
        return self.echoed(path, body, headers) | beside


def ways(tcp: Callers, unix: Callers, logits: Tensor, targets: bool) -> list[Way]:
    """What to compare, of some rows."""
    dense = evaluation_of(logits, "softmax", "probabilities")
    sparse = evaluation_of(logits, "entmax", "support")
    softmax, entmax = "/v2/models/softmax/infer", "/v2/models/entmax/infer"
    support = ("support_offsets", "support_indices", "support_probabilities")
    half = logits.bfloat16()
    numbers = [[round(x, 4) for x in row] for row in logits.tolist()]
    fields = {"mapping": "softmax", "dtype": "float32"}
    text = json.dumps({"logits": numbers, **fields}).encode()
    tensors = safetensors_body({"logits": logits}, mapping="softmax")
    accepted = {"Content-Type": MEDIA_TYPE, "Accept": MEDIA_TYPE}
    whole, few = oip_body(logits, "probabilities"), oip_body(logits, *support)
    shared = oip_body(logits, *support, region=REGION)
    half_alone = evaluation_of(half, "softmax", "probabilities")
    in_process = {"beside": sparse, "against": "in-process", "most": 1.5 if targets else None}
    return [
        Way(
            "JSON, dense",
            **tcp.echoed("/v1/map", text, {}),
            alone=evaluation_of(logits.double(), "softmax", "probabilities"),
            turns=JSON_TURNS,
        ),
        Way(
            "OIP float32, dense",
            **tcp.echoed(softmax, *whole),
            alone=dense,
            most=1.6 if targets else None,
        ),
        Way(
            "OIP bfloat16, dense",
            **tcp.echoed(softmax, *oip_body(half, "probabilities")),
            alone=half_alone,
        ),
        Way("safetensors, dense", **tcp.echoed("/v1/map", tensors, accepted), alone=dense),
        Way("Unix socket, OIP float32, dense", **unix.echoed(softmax, *whole), alone=dense),
        Way(
            "OIP float32, sparse",
            **tcp.read(entmax, *few),
            alone=sparse,
            most=1.3 if targets else None,
        ),
        Way("shared memory, sparse", **tcp.echoed(entmax, *shared) | in_process, alone=sparse),
    ]


def show(found: list[Way], rows: int) -> None:
    """Prints the times and ratios of all ways."""
    for way in found:
        for warming in (way.request, way.beside, way.alone):
            warming()
    taken: dict[str, list[tuple[float, float, float]]] = {way.name: [] for way in found}
    for turn in range(TURNS):
        for way in found:
            if turn < way.turns:
                taken[way.name].append((way.request(), way.beside(), way.alone()))
    table = Table(title=f"{rows} × {CLASSES:,}: softmax dense, entmax sparse")
    for name in ("", "ms", "of", "ms", "ratio", "target", "evaluation, ms"):
        table.add_column(name, justify="right")
    for way in found:
        own, other, alone = (1e3 * statistics.median(s) for s in zip(*taken[way.name], strict=True))
        ratio = statistics.median(one / two for one, two, _ in taken[way.name])
        target = "" if way.most is None else f"≤ {way.most} ×"
        figures = (f"{own:.1f}", way.against, f"{other:.1f}", f"{ratio:.2f} ×", target)
        table.add_row(way.name, *figures, f"{alone:.1f}")
    console.print(table)


def compare(rows: int, tcp: Callers, unix: Callers, url: str) -> None:
    """Compares all ways for some rows, whose logits are in shared memory too."""
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(rows, CLASSES, generator=generator)
    key = f"probmap-benchmark-{os.getpid()}"
    region = shared_memory.create_shared_memory_region(REGION, key, logits.nbytes)
    try:
        shared_memory.set_shared_memory_region(region, [logits.numpy()])
        path = f"{url}/v2/systemsharedmemory/region/{REGION}"
        given = {"key": key, "offset": 0, "byte_size": logits.nbytes}
        httpx.post(f"{path}/register", json=given).raise_for_status()
        show(ways(tcp, unix, logits, targets=rows == max(ROWS)), rows)
        httpx.post(f"{path}/unregister").raise_for_status()
    finally:
        shared_memory.destroy_shared_memory_region(region)


if __name__ == "__main__":
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        path = str(folder / "probmap.sock")
        flags = ("--uds", path, "--allow-shared-memory", "--log-level", "warning")
        server = stack.enter_context(running_server(*flags))
        bare = bare_server(socket.AF_INET, ("127.0.0.1", 0))
        bare_unix = bare_server(socket.AF_UNIX, str(folder / "bare.sock"))
        tcp = Callers(Caller(("127.0.0.1", server.port)), Caller(stack.enter_context(bare)))
        unix = Callers(Caller(path), Caller(stack.enter_context(bare_unix)))
        for count in ROWS:
            compare(count, tcp, unix, server.url)
