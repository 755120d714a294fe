"""A stream: many requests over one connection, answered as they are ready."""

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from starlette.requests import ClientDisconnect

from mappings.errors import ProbmapError
from service.answering import answer
from service.engine.admission import Permit
from service.errors import Internal, NotReady, TooLarge
from service.runtime import Runtime
from service.stages import Progress
from service.window import Window
from service.wire.exchange import Encoded, Exchange

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
        self._window: Window[tuple[Encoded, Permit]] = Window(
            runtime.settings.stream_window, in_order=in_order
        )
        self._permits: set[Permit] = set()
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
        async for encoded, permit in self._window.results():
            yield encoded
            self._release(permit)

    @property
    def ending(self) -> Ending:
        """How it ended, once all answers are taken."""
        return Ending(self._requests, self._failed, self._error)

    def abandon(self) -> None:
        """Stops all work: nobody is there for the answers."""
        self._window.abandon()

    def close(self) -> None:
        """Stops all work, and gives back every permit."""
        self.abandon()
        for permit in list(self._permits):
            self._release(permit)

    async def _start_all(self, arriving: AsyncIterator[Arrived]) -> None:
        admission = self._runtime.admission
        try:
            async for arrived in arriving:
                await self._window.room()
                permit = await self._permit(len(arrived.body or b""))
                self._window.start(self._answered(arrived, permit))
                self._requests += 1
                self._runtime.metrics.count_streamed()
            if admission.closing.is_set():
                raise NotReady("the server is stopping; send what is left to another one")
        except ProbmapError as error:
            self._error = error

    async def _permit(self, size: int) -> Permit:
        """A permit that holds a body; waits for room for it."""
        permit = self._runtime.admission.enter()
        self._permits.add(permit)
        await permit.hold_when_fits(size)
        return permit

    def _release(self, permit: Permit) -> None:
        self._permits.discard(permit)
        permit.release()

    async def _answered(self, arrived: Arrived, permit: Permit) -> tuple[Encoded, Permit]:
        """The answer to a request, or its error."""
        try:
            if arrived.body is None:
                limit = self._runtime.settings.max_body_bytes
                raise TooLarge.over("this request is too large", "max_body_bytes", limit)
            progress = Progress(time.monotonic())
            encoded = await answer(self._runtime, arrived.exchange, arrived.body, permit, progress)
            return encoded, permit
        except ProbmapError as error:
            told = error
        # One request's failure is its own alone.
        except Exception:
            log.exception("a request of stream %s failed", self._request_id)
            told = Internal()
        self._failed += 1
        self._runtime.metrics.count_failure(told.code)
        # Its traceback and this frame would keep each other, and the body, for long.
        told = told.with_traceback(None)
        return arrived.exchange.failed(told, self._request_id), permit
