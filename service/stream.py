"""A stream of JSON lines: many requests over one connection, answered as they are ready."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from mappings.errors import ProbmapError
from service.answering import answer
from service.engine.admission import Place
from service.errors import Internal, NotReady, TooLarge
from service.lines import LongLine, lines
from service.runtime import Runtime
from service.window import Window
from service.wire.jsonl import LineExchange, closing

ROOM_SECONDS = 0.01
"""How often a stream looks whether there is room for its next line (seconds)."""

Parts = list[bytes | memoryview]

log = logging.getLogger("probmap.request")


class LineStream:
    """The requests of one stream, a bounded number of them in flight.

    Attributes:
        lines: how many have come (a count).
        failed: how many of them were answered with an error (a count).
    """

    def __init__(self, runtime: Runtime, request_id: str, *, in_order: bool) -> None:
        self.lines = 0
        self.failed = 0
        self._runtime = runtime
        self._request_id = request_id
        self._window: Window[tuple[Parts, Place]] = Window(
            runtime.settings.stream_window, in_order=in_order
        )
        self._places: set[Place] = set()
        self._error: ProbmapError | None = None

    async def read(self, receive: Receive) -> None:
        """Starts a request for each line, no faster than answers are taken; owns `receive`."""
        try:
            await self._read(receive)
            self._window.complete()
            # What comes behind the body, if anything, is that the client has left.
            while (await receive())["type"] != "http.disconnect":
                pass
        except ClientDisconnect:
            pass
        finally:
            self._window.abandon()

    async def answers(self) -> AsyncIterator[Parts]:
        """The answers to all lines, and the closing line.

        Raises:
            ClientDisconnect: the client left.
        """
        async for parts, place in self._window.results():
            yield parts
            self._release(place)
        yield [closing(self.lines, self.failed, self._error, self._request_id)]

    def close(self) -> None:
        """Stops all work, and gives back every place."""
        self._window.abandon()
        for place in list(self._places):
            self._release(place)

    async def _read(self, receive: Receive) -> None:
        settings, admission = self._runtime.settings, self._runtime.admission
        arriving = lines(
            receive, settings.max_body_bytes, settings.stream_idle_seconds, admission.closing
        )
        try:
            async for line in arriving:
                await self._window.room()
                place = await self._place(0 if isinstance(line, LongLine) else len(line))
                self._window.start(self._answered(self.lines, line, place))
                self.lines += 1
            if admission.closing.is_set():
                raise NotReady("the server is stopping; send what is left to another one")
        except ProbmapError as error:
            self._error = error

    async def _place(self, size: int) -> Place:
        """A place that holds a line; waits for room: a stream is slowed, not refused."""
        place = self._runtime.admission.enter()
        self._places.add(place)
        while not place.fits(size):
            await asyncio.sleep(ROOM_SECONDS)
        place.hold(size)
        return place

    def _release(self, place: Place) -> None:
        self._places.discard(place)
        place.release()

    async def _answered(
        self, index: int, line: bytearray | LongLine, place: Place
    ) -> tuple[Parts, Place]:
        """The answer to a line, or the line of its error."""
        exchange = LineExchange(index, self._runtime.settings)
        try:
            if isinstance(line, LongLine):
                limit = self._runtime.settings.max_body_bytes
                raise TooLarge.over("the line is too long", "max_body_bytes", limit)
            arrived = time.monotonic()
            found = await answer(self._runtime, exchange, line, place, arrived=arrived)
            return list(found.body.parts), place
        except ProbmapError as error:
            told = error
        # One line's failure is that line's alone.
        except Exception:
            log.exception("line %d of stream %s failed", index, self._request_id)
            told = Internal("the server failed; its log tells why, under this request_id")
        self.failed += 1
        return list(exchange.failed(told, self._request_id).parts), place
