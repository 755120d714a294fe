"""A request's body on its way from the client, within its limits of size and time."""

import asyncio
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from service.engine.admission import Permit
from service.errors import BodyTimeout, TooLarge
from service.rest_of_body import rest_of_body
from service.rooms import Rooms
from service.settings import Settings, allowance, flag
from service.wire.exchange import Body

PAST_PARSER_BYTES = 256 << 10
"""What must be left of a body for the rest to be received past the parser (bytes)."""


@dataclass(frozen=True, slots=True)
class BodyLimit:
    """The most that a body may have.

    Attributes:
        bytes: so many.
        rule: why, and how to have more.
    """

    bytes: int
    rule: str

    @classmethod
    def of(cls, settings: Settings) -> "BodyLimit":
        """The limit that is a setting."""
        most = settings.max_body_bytes
        return cls(most, allowance("max_body_bytes", most))

    def check(self, size: int, what: str) -> None:
        """Raises TooLarge for a size (bytes) that is over the limit; `what` says of what."""
        if size > self.bytes:
            raise TooLarge(f"{what}; {self.rule}")


class ArrivingBody:
    """A body on its way, in one buffer, behind `lead` bytes of no meaning.

    Attributes:
        rooms: where the buffer of a large body is taken from; None: it is a bytearray.
    """

    rooms: Rooms | None = None

    def __init__(
        self, scope: Scope, receive: Receive, limit: BodyLimit, permit: Permit, lead: int
    ) -> None:
        """Prepares to read.

        Args:
            scope: the request's.
            receive: the request's.
            limit: of its size.
            permit: the request's, which holds the body as it grows.
            lead: how many bytes to leave before it.
        """
        self._scope = scope
        self._receive = receive
        self._limit = limit
        self._permit = permit
        self._lead = lead
        self._body: Body = bytearray(lead)
        headers = Headers(scope=scope)
        declared = headers.get("content-length", "")
        self._expected = int(declared[:20]) if declared.isdecimal() else 0
        self._is_counted = "transfer-encoding" not in headers

    async def whole(self, seconds: float) -> Body:
        """All of it, which has so long to come.

        Raises:
            TooLarge: it is larger than the limit.
            BodyTimeout: it did not come in time.
            Overloaded: the server holds too much for it.
            ClientDisconnect: the client left.
        """
        self._limit.check(self._expected, f"the body has {self._expected:,} bytes")
        try:
            async with asyncio.timeout(seconds):
                while await self._piece():
                    if self.rooms is not None and self._is_counted:
                        await self._rest(self.rooms)
            return self._body
        except TimeoutError:
            raise BodyTimeout(
                f"the body did not arrive within {seconds:g} seconds "
                f"({flag('body_timeout_seconds')} of the server sets this time)"
            ) from None

    async def _piece(self) -> bool:
        """Appends the next piece; whether there are more."""
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        more: bool = message.get("more_body", False)
        if piece := message.get("body", b""):
            assert isinstance(self._body, bytearray)  # What has its room is whole already.
            self._body += piece
        size = len(self._body) - self._lead
        self._limit.check(size, "the body is too large")
        if more:
            self._hold(size)
        return more

    async def _rest(self, rooms: Rooms) -> None:
        """Receives what is left where it is to be, if it is much and the connection can."""
        begun = len(self._body)
        if self._lead + self._expected - begun < PAST_PARSER_BYTES:
            return
        body = rooms.room(self._lead + self._expected)
        body[:begun] = self._body
        room = body[begun:]
        rest = rest_of_body(self._scope, room)
        if rest is None:
            return
        try:
            got = 0
            while not rest.is_whole:
                got = await rest.arrived(got)
                self._hold(begun - self._lead + got)
        finally:
            rest.leave()
        self._body = body

    def _hold(self, size: int) -> None:
        # All of it must fit, but only what is there is held: who sends nothing takes no room
        # from others.
        self._permit.expect(max(self._expected, size))
        self._permit.hold(size)
