"""Load on a running server: callers that wait for their answers, or that come at a fixed rate."""

import asyncio
import json
import random
import time
from collections import deque
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request came to.

    Attributes:
        status: of HTTP; 0 when the connection ended without an answer.
        seconds: from sending the request to the end of the answer.
        at: when the answer was there (seconds from the start of the load).
    """

    status: int
    seconds: float
    at: float


def request_bytes(path: str, body: dict[str, Any]) -> bytes:
    """A whole JSON request as it goes over the wire."""
    return binary_request(path, json.dumps(body).encode(), {"Content-Type": "application/json"})


def binary_request(path: str, content: bytes, headers: dict[str, str]) -> bytes:
    """A whole request of any body as it goes over the wire."""
    fields = {"Host": "localhost", **headers, "Content-Length": str(len(content))}
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {text}" for name, text in fields.items())]
    return "\r\n".join([*lines, "\r\n"]).encode() + content


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back.

    Attributes:
        status: of HTTP; 0 when the connection ended without an answer.
        body: of the answer.
    """

    status: int
    body: bytes = b""


class Callers:
    """Connections to one server, kept and used again."""

    def __init__(self, port: int, request: bytes = b"") -> None:
        """Connects nobody yet.

        Args:
            port: of the server, on this machine.
            request: what a call sends that names no other.
        """
        self._port = port
        self._request = request
        self._free: deque[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = deque()
        self._started = time.perf_counter()
        self.answers: list[Answer] = []

    async def call(self, request: bytes | None = None) -> Reply:
        """Makes one request and notes its answer."""
        started = time.perf_counter()
        reply = Reply(0)
        with suppress(OSError, asyncio.IncompleteReadError):
            reply = await self._called(self._request if request is None else request)
        ended = time.perf_counter()
        self.answers.append(Answer(reply.status, ended - started, ended - self._started))
        return reply

    async def _called(self, request: bytes) -> Reply:
        if self._free:
            reader, writer = self._free.pop()
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        body = await _body(reader, head.lower())
        if b"connection: close" in head.lower():
            writer.close()
        else:
            self._free.append((reader, writer))
        return Reply(int(head[9:12]), body)

    def close(self) -> None:
        """Closes every connection."""
        for _, writer in self._free:
            writer.close()


async def _body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    """The rest of an answer whose head, in lower case, is read."""
    if b"transfer-encoding: chunked" not in head:
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        return await reader.readexactly(length)
    parts: list[bytes] = []
    while size := int(await reader.readline(), 16):
        parts.append(await reader.readexactly(size))
        await reader.readexactly(2)
    await reader.readexactly(2)
    return b"".join(parts)


async def waiting_callers(port: int, request: bytes, callers: int, seconds: float) -> list[Answer]:
    """So many callers, each of whom waits for an answer before the next request."""
    all_of_them = Callers(port, request)
    ending = time.perf_counter() + seconds

    async def caller() -> None:
        while time.perf_counter() < ending:
            await all_of_them.call()

    await asyncio.gather(*(caller() for _ in range(callers)))
    all_of_them.close()
    return all_of_them.answers


async def steady_callers(port: int, request: bytes, rate: float, seconds: float) -> list[Answer]:
    """So many requests a second, whether those before are answered or not."""
    all_of_them = Callers(port, request)
    started = time.perf_counter()
    calls: list[Awaitable[Reply]] = []
    while (elapsed := time.perf_counter() - started) < seconds:
        while len(calls) < elapsed * rate:
            calls.append(asyncio.ensure_future(all_of_them.call()))
        await asyncio.sleep(0.005)
    await asyncio.gather(*calls)
    all_of_them.close()
    return all_of_them.answers


async def random_callers(
    port: int, request: bytes, rate: float, seconds: float, seed: int = 0
) -> list[Answer]:
    """So many requests a second on average, at times that know nothing of each other.

    The event loop's clock ticks in milliseconds: what is due within one is asked at its end.
    """
    all_of_them, draw = Callers(port, request), random.Random(seed)
    started = time.perf_counter()
    calls: list[Awaitable[Reply]] = []
    due = draw.expovariate(rate)
    while due < seconds:
        await asyncio.sleep(max(started + due - time.perf_counter(), 0.0))
        while due <= time.perf_counter() - started:
            calls.append(asyncio.ensure_future(all_of_them.call()))
            due += draw.expovariate(rate)
    await asyncio.gather(*calls)
    all_of_them.close()
    return all_of_them.answers


def rate_of(answers: list[Answer], status: int, seconds: float) -> float:
    """Answers of a status a second, over the seconds in which requests were made."""
    return sum(one.status == status and one.at <= seconds for one in answers) / seconds


def quantile(answers: list[Answer], status: int, share: float) -> float:
    """The seconds within which such a share of the answers of a status came."""
    found = sorted(one.seconds for one in answers if one.status == status)
    return found[min(int(share * len(found)), len(found) - 1)]
