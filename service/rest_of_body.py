"""The rest of a large body, received into the very buffer in which it is read.

A parser hands a body on in pieces, each copied four times on its way through HTTP server and ASGI.
Once the header has said how long a body is, there is nothing left to parse in it.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from starlette.requests import ClientDisconnect
from starlette.types import Scope

REST = "rest_of_body"
"""Where the state of a request's scope has the `Begin` of its connection."""


class Receiving(Protocol):
    """What a connection is for the rest of a body that comes past its parser."""

    def take_rest(self) -> bytearray:
        """What the parser has handed on and nobody has received yet; no more will come by it."""

    def read_rest(self, protocol: asyncio.BaseProtocol) -> None:
        """Lets the socket's bytes go to a protocol instead of the parser."""

    def end_rest(self, skipped: memoryview | None) -> None:
        """Lets them go to the parser again.

        Args:
            skipped: what the parser has missed of a body that was not received to its end; None:
                the body has ended.
        """

    def eof_received(self) -> bool | None:
        """The client sends no more."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""

    def pause_writing(self) -> None:
        """The client does not keep up with what is written."""

    def resume_writing(self) -> None:
        """It does."""


class RestOfBody(asyncio.BufferedProtocol):
    """Stands in for a connection's protocol while the rest of a body comes."""

    def __init__(self, connection: Receiving, room: memoryview) -> None:
        """Begins to receive.

        Args:
            connection: whose body it is.
            room: takes the rest, to its last byte.
        """
        self._connection = connection
        self._room = room
        self._size = len(room)
        self._moved = asyncio.Event()
        self._is_lost = False
        pending = connection.take_rest()
        room[: len(pending)] = pending
        self._got = len(pending)
        self._is_over = False
        if not self._ended():
            connection.read_rest(self)

    @property
    def is_whole(self) -> bool:
        """Whether all of it has come."""
        return self._got == self._size

    async def arrived(self, before: int) -> int:
        """Waits until more than `before` bytes of the rest have come; returns how many.

        Raises:
            ClientDisconnect: the client left.
        """
        while self._got == before and not self._is_lost:
            self._moved.clear()
            await self._moved.wait()
        if self._is_lost:
            raise ClientDisconnect
        return self._got

    def leave(self) -> None:
        """Receives no more; what is still to come goes to the parser."""
        if not self._is_over and not self._is_lost:
            self._end(self._room[: self._got])

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        return self._room[self._got : self._got + 262144]

    def buffer_updated(self, nbytes: int) -> None:
        """Some have come."""
        self._got += nbytes
        self._moved.set()
        self._ended()

    def eof_received(self) -> bool | None:
        """The client sends no more."""
        return self._connection.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self._is_lost = not self.is_whole
        self._room = memoryview(b"")
        self._moved.set()
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        """The client does not keep up with what is written."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """It does."""
        self._connection.resume_writing()

    def _ended(self) -> bool:
        if self.is_whole:
            self._end(None)
        return self.is_whole

    def _end(self, skipped: memoryview | None) -> None:
        self._is_over = True
        self._connection.end_rest(skipped)
        # A transport keeps the last protocol of this kind; that must not keep the body.
        self._room = memoryview(b"")


Begin = Callable[[Scope, memoryview], RestOfBody | None]
"""Begins to receive the rest of a request's body into the room for it; None: it cannot."""


def rest_of_body(scope: Scope, room: memoryview) -> RestOfBody | None:
    """Begins to receive the rest of a request's body; None: it comes by the parser after all."""
    begin: Begin | None = scope.get("state", {}).get(REST)
    return None if begin is None else begin(scope, room)
