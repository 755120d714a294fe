"""A client of /v1/stream that sends and reads at the same time, over a socket of its own."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, Self

from server import RunningServer

LINES = "application/x-ndjson"


class LineClient:
    """One stream.

    Attributes:
        status: of the answer; 0 before its head has come.
        headers: of the answer, names in lower case.
    """

    def __init__(self, server: RunningServer, query: str = "", **headers: str) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self._server = server
        self._target = f"/v1/stream{query}"
        self._sent = {"Content-Type": LINES} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._server.port)
        lines = [f"POST {self._target} HTTP/1.1", "Host: x", "Transfer-Encoding: chunked"]
        lines += [f"{name}: {value}" for name, value in self._sent.items()]
        self._writer.write("\r\n".join([*lines, "", ""]).encode())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    def leave(self) -> None:
        """Breaks the connection off, whatever is still to be sent."""
        self._writer.transport.abort()

    async def send(self, *requests: Any) -> None:
        """Sends requests, a line each."""
        for request in requests:
            await self.send_bytes(json.dumps(request).encode() + b"\n")

    async def send_bytes(self, text: bytes) -> None:
        """Sends part of the body as it is, in a chunk of its own."""
        self._writer.write(b"%x\r\n%b\r\n" % (len(text), text))
        await self._writer.drain()

    async def end(self) -> None:
        """Ends the body."""
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    async def texts(self) -> AsyncIterator[bytes]:
        """The parts of the answer's body as they come, to its end."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *rest = head.rstrip().split("\r\n")
        self.status = int(first.split()[1])
        self.headers = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)
        }
        if "content-length" in self.headers:
            yield await self._reader.readexactly(int(self.headers["content-length"]))
            return
        while size := int(await self._reader.readline(), 16):
            yield await self._reader.readexactly(size)
            await self._reader.readline()

    async def answers(self) -> AsyncIterator[dict[str, Any]]:
        """The answer's lines as they come, to its end."""
        kept = b""
        async for text in self.texts():
            *lines, kept = (kept + text).split(b"\n")
            for line in lines:
                yield json.loads(line)
        assert not kept


async def exchanged(
    server: RunningServer, *requests: Any, query: str = "", **headers: str
) -> list[dict[str, Any]]:
    """All answers to some requests, the closing line last."""
    async with LineClient(server, query, **headers) as client:
        await client.send(*requests)
        await client.end()
        return [answer async for answer in client.answers()]
