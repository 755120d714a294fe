"""A stream: many requests over one connection, answered as they are ready."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from starlette.requests import ClientDisconnect

from mappings.errors import ProbmapError
from service.answering import answer
from service.engine.admission import Place
from service.errors import Internal, NotReady, TooLarge
from service.runtime import Runtime
from service.window import Window
from service.wire.exchange import Encoded, Exchange

ROOM_SECONDS = 0.01
"""How often a stream looks whether there is room for its next request (seconds)."""

log = logging.getLogger("probmap.request")


class StreamedExchange(Exchange, Protocol):
    """A request of a stream and its answer, which may be an error."""

    def failed(self, error: ProbmapError, request_id: str) -> Encoded:
        """The answer when there is none."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """A request that has come.

    Attributes:
        exchange: how to read and to answer it.
        body: what came; None: more than the limit, so that it was dropped.
    """

    exchange: StreamedExchange
    body: bytearray | None


@dataclass(frozen=True, slots=True)
class Ending:
    """How a stream ended.

    Attributes:
        requests: how many there were (a count).
        failed: how many of them were answered with an error (a count).
        error: why it ended before its time; None: it did not.
    """

    requests: int
    failed: int
    error: ProbmapError | None


class Stream:
    """The requests of one connection, a bounded number of them in flight."""

    def __init__(self, runtime: Runtime, request_id: str, *, in_order: bool) -> None:
        self._runtime = runtime
        self._request_id = request_id
        self._window: Window[tuple[Encoded, Place]] = Window(
            runtime.settings.stream_window, in_order=in_order
        )
        self._places: set[Place] = set()
        self._requests = 0
        self._failed = 0
        self._error: ProbmapError | None = None

    async def read(
        self, arriving: AsyncIterator[Arrived], gone: Callable[[], Awaitable[None]]
    ) -> None:
        """Starts each request, no faster than answers are taken.

        Args:
            arriving: the requests as they come; raises ClientDisconnect when the client leaves.
            gone: called when all have come; returns when the client leaves.
        """
        try:
            await self._start_all(arriving)
            self._window.complete()
            await gone()
        except ClientDisconnect:
            pass
        finally:
            self._window.abandon()

    async def answers(self) -> AsyncIterator[Encoded]:
        """The answers to all requests.

        Raises:
            ClientDisconnect: the client left.
        """
        async for encoded, place in self._window.results():
            yield encoded
            self._release(place)

    @property
    def ending(self) -> Ending:
        """How it ended, once all answers are taken."""
        return Ending(self._requests, self._failed, self._error)

    def close(self) -> None:
        """Stops all work, and gives back every place."""
        self._window.abandon()
        for place in list(self._places):
            self._release(place)

    async def _start_all(self, arriving: AsyncIterator[Arrived]) -> None:
        admission = self._runtime.admission
        try:
            async for arrived in arriving:
                await self._window.room()
                place = await self._place(len(arrived.body or b""))
                self._window.start(self._answered(arrived, place))
                self._requests += 1
                self._runtime.metrics.streamed.inc()
            if admission.closing.is_set():
                raise NotReady("the server is stopping; send what is left to another one")
        except ProbmapError as error:
            self._error = error

    async def _place(self, size: int) -> Place:
        """A place that holds a body; waits for room: a stream is slowed, not refused."""
        place = self._runtime.admission.enter()
        self._places.add(place)
        while not place.fits(size):
            await asyncio.sleep(ROOM_SECONDS)
        place.hold(size)
        return place

    def _release(self, place: Place) -> None:
        self._places.discard(place)
        place.release()

    async def _answered(self, arrived: Arrived, place: Place) -> tuple[Encoded, Place]:
        """The answer to a request, or its error."""
        try:
            if arrived.body is None:
                limit = self._runtime.settings.max_body_bytes
                raise TooLarge.over("this request is too large", "max_body_bytes", limit)
            found = await answer(
                self._runtime, arrived.exchange, arrived.body, place, arrived=time.monotonic()
            )
            return found.body, place
        except ProbmapError as error:
            told = error
        # One request's failure is its own alone.
        except Exception:
            log.exception("a request of stream %s failed", self._request_id)
            told = Internal("the server failed; its log tells why, under this request_id")
        self._failed += 1
        self._runtime.metrics.failure(told.code)
        # Its traceback and this frame would keep each other, and the body, for long.
        told = told.with_traceback(None)
        return arrived.exchange.failed(told, self._request_id), place
