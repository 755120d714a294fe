"""The response of a stream: answers that are sent while its requests are still coming."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Protocol

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from service.bounded import LOST
from service.runtime import Runtime
from service.stream import Arrived, Ending, Stream

SMALL_BYTES = 32 << 10
"""Parts of an answer up to this long together (bytes) are sent in one piece."""

Parts = Sequence[bytes | memoryview]


class StreamFormat(Protocol):
    """How the requests of a stream are read, and what is sent around its answers.

    Attributes:
        media_type: of the answers.
        opening: what comes before the first answer.
    """

    media_type: str
    opening: bytes

    def arriving(self, receive: Receive) -> AsyncIterator[Arrived]:
        """The requests as they come; raises ClientDisconnect when the client leaves."""

    def framed(self, parts: Parts) -> Parts:
        """An answer as it is sent."""

    def closing(self, ending: Ending) -> Parts:
        """What comes after the last answer."""


class StreamResponse(Response):
    """The answers of a stream."""

    def __init__(
        self, runtime: Runtime, request_id: str, form: StreamFormat, *, in_order: bool
    ) -> None:
        super().__init__(media_type=form.media_type)
        self.raw_headers = [
            (b"content-type", form.media_type.encode()),
            (b"cache-control", b"no-store"),
            # Proxies that collect answers would hold the stream up.
            (b"x-accel-buffering", b"no"),
        ]
        self._runtime = runtime
        self._form = form
        self._stream = Stream(runtime, request_id, in_order=in_order)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Reads and answers until both are done; one task alone owns `receive`."""
        stream, form = self._stream, self._form
        permit = self._runtime.admission.enter()
        reading = asyncio.ensure_future(
            stream.read(form.arriving(receive), partial(_gone, receive))
        )
        leaving = asyncio.ensure_future(_abandon_when_lost(stream, scope))
        try:
            start = {"status": self.status_code, "headers": self.raw_headers}
            await send({"type": "http.response.start", **start})
            await self._send(send, [form.opening])
            async for encoded in stream.answers():
                await self._send(send, form.framed(encoded.parts))
            await self._send(send, form.closing(stream.ending))
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            reading.cancel()
            leaving.cancel()
            stream.close()
            permit.release()

    async def _send(self, send: Send, parts: Parts) -> None:
        """Sends an answer; raises ClientDisconnect when the client has read nothing for long."""
        if sum(map(len, parts)) <= SMALL_BYTES:
            parts = [b"".join(parts)]
        try:
            for part in filter(len, parts):
                async with asyncio.timeout(self._runtime.settings.stream_idle_seconds):
                    await send({"type": "http.response.body", "body": part, "more_body": True})
        except TimeoutError:
            raise ClientDisconnect from None


async def _abandon_when_lost(stream: Stream, scope: Scope) -> None:
    """Stops the work of a client that leaves while nothing that it sent is read."""
    # Servers other than ours tell of it by what is received alone.
    lost: asyncio.Event | None = scope.get("state", {}).get(LOST)
    if lost is not None:
        await lost.wait()
        stream.abandon()


async def _gone(receive: Receive) -> None:
    """Returns when the client has left: nothing else can come behind a body."""
    while (await receive())["type"] != "http.disconnect":
        pass
