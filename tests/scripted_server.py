"""A small HTTP server that does what a test tells it to, request by request."""

import json
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from safetensors.numpy import save

ANSWER = save(
    {"probabilities": np.array([[0.25, 0.75]])},
    {"answer": json.dumps({"mapping": {"name": "softmax"}, "rows": 1})},
)
"""A body that the client reads as a result."""

LINGER_NOT = struct.pack("ii", 1, 0)
"""Closing a socket with this option resets the connection."""


@dataclass
class Step:
    """What is done with a request.

    Attributes:
        status: of the answer.
        body: of the answer; None: a result, or a problem document.
        headers: beside those that every answer has.
        seconds: to wait before.
        keeps: the share of the answer that is sent before the connection is reset; 1: all.
    """

    status: int = 200
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    keeps: float = 1.0

    def answer(self) -> bytes:
        kind, body = "application/vnd.safetensors", self.body or ANSWER
        if self.status != 200:
            kind = "application/problem+json"
            document = {"code": f"scripted_{self.status}", "detail": "as the test wants it"}
            body = json.dumps(document).encode() if self.body is None else self.body
        sent = {"Content-Type": kind, "Content-Length": str(len(body)), **self.headers}
        lines = [f"{name}: {value}" for name, value in sent.items()]
        return "\r\n".join([f"HTTP/1.1 {self.status} x", *lines, "", ""]).encode() + body


OK = Step()
RESET = Step(keeps=0.0)


@dataclass
class Seen:
    """A request that came.

    Attributes:
        moment: when (seconds of time.monotonic).
        headers: by name in lower case.
        body: its bytes.
        connection: how many connections had been opened when it came (a count).
    """

    target: str
    moment: float
    headers: dict[str, str]
    body: bytes
    connection: int


class ScriptedServer:
    """Answers with one step after the other, and then with the last one again and again.

    Attributes:
        seen: the requests, in the order in which they came.
        most: how many were being answered at a time (a count).
    """

    def __init__(self, steps: Sequence[Step], path: str | None) -> None:
        self.seen: list[Seen] = []
        self.most = 0
        self._busy = 0
        self._steps = steps
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._opened: list[socket.socket] = []
        family = socket.AF_INET if path is None else socket.AF_UNIX
        self._listening = socket.socket(family)
        self._listening.bind(("127.0.0.1", 0) if path is None else path)
        self._listening.listen(64)
        self.url = "http://localhost"
        if path is None:
            self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self._opened.append(connection)
            serving = threading.Thread(target=self._serve, args=(connection, len(self._opened)))
            self._threads.append(serving)
            serving.start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        try:
            with connection, connection.makefile("rb") as coming:
                while (line := coming.readline()) and self._answer(
                    connection, line, coming, number
                ):
                    pass
        except OSError:
            # The client left, or the test is over.
            return

    def _answer(self, connection: socket.socket, line: bytes, coming: Any, number: int) -> bool:
        """Answers one request; whether another may follow."""
        headers = {}
        while field_line := coming.readline().strip():
            name, _, value = field_line.decode().partition(":")
            headers[name.lower()] = value.strip()
        body = coming.read(int(headers.get("content-length", 0)))
        with self._lock:
            self._busy += 1
            self.most = max(self.most, self._busy)
            step = self._steps[min(len(self.seen), len(self._steps) - 1)]
            target = line.split()[1].decode()
            self.seen.append(Seen(target, time.monotonic(), headers, body, number))
        self._ended.wait(step.seconds)
        answer = step.answer()
        with self._lock:
            self._busy -= 1
        connection.sendall(answer[: int(len(answer) * step.keeps)])
        if step.keeps < 1:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
            return False
        return True

    def waits(self) -> list[float]:
        """The time between each request and the one before it (seconds)."""
        moments = [seen.moment for seen in self.seen]
        return [later - earlier for earlier, later in pairwise(moments)]

    def close(self) -> None:
        self._ended.set()
        for opened in (self._listening, *self._opened):
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
            opened.close()
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()


@contextmanager
def scripted(*steps: Step, path: str | None = None) -> Iterator[ScriptedServer]:
    """A server that answers with these steps, on a free port or a Unix socket."""
    server = ScriptedServer(steps or (OK,), path)
    try:
        yield server
    finally:
        server.close()
