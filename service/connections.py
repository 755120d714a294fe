"""HTTP connections that are bounded, read by either parser."""

import asyncio
from typing import Any

import h11
from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mappings.errors import ProbmapError
from service.bounded import Bounded
from service.errors import HeaderTooLarge
from service.plain_parser import PlainParser
from service.rest_of_body import REST, RestOfBody
from service.settings import Settings, allowance


def _too_large(settings: Settings) -> ProbmapError:
    limit = settings.max_header_bytes
    return HeaderTooLarge(f"the header is too large; {allowance('max_header_bytes', limit)}")


class HttptoolsConnection(Bounded, HttpToolsProtocol):
    """A connection that is read by httptools, which bounds nothing itself."""

    parser: Any
    _is_in_body = False
    _has_moved_on = False
    _is_catching_up = False
    _header_bytes = 0
    _unfinished_bytes = 0

    def is_in_body(self) -> bool:
        """Whether a request's header has come, and not yet all of its body."""
        return self._is_in_body

    def fault(self) -> ProbmapError:
        """Why what came cannot be read."""
        is_too_large = self._header_bytes > self.settings.max_header_bytes
        return _too_large(self.settings) if is_too_large else super().fault()

    def data_received(self, data: bytes) -> None:
        """Reads on; of what is neither a header nor a body yet, no more than a header's size."""
        self._has_moved_on = False
        super().data_received(data)
        # The parser keeps what it has of a line to itself until the line is whole.
        self._unfinished_bytes = 0 if self._has_moved_on else self._unfinished_bytes + len(data)
        if self._unfinished_bytes > self.settings.max_header_bytes:
            self.refuse(_too_large(self.settings))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Takes the connection, or refuses it when there are too many."""
        self.parser = PlainParser(self)
        self.app_state = {**self.app_state, REST: self._rest}
        super().connection_made(transport)

    def on_message_begin(self) -> None:
        """A request begins."""
        self._header_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A part of the path has come."""
        self._count(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A line of the header has come; those behind a body are of no use."""
        self._count(name, value)
        if not self._is_in_body:
            super().on_header(name, value)

    def _count(self, *parts: bytes) -> None:
        self._header_bytes += sum(map(len, parts))
        if self._header_bytes > self.settings.max_header_bytes:
            # What a callback raises is, to the parser, a request that cannot be read.
            raise ValueError("the header is too large")

    def on_headers_complete(self) -> None:
        """The header has come."""
        if self.parser.is_offered_another:
            return
        self._is_in_body = self._has_moved_on = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of the body has come."""
        self._has_moved_on = True
        if not self._is_catching_up:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The request has come."""
        if self.parser.is_offered_another:
            return
        self._is_in_body, self._has_moved_on = False, True
        super().on_message_complete()

    def _rest(self, scope: Scope, room: memoryview) -> RestOfBody | None:
        """Receives the rest of a request's body; None where the parser has read to its end."""
        # A scope is copied on its way, its headers are not.
        is_current = scope["headers"] is self.cycle.scope["headers"] and self._is_in_body
        return RestOfBody(self, room) if is_current and not self.cycle.disconnected else None

    def take_rest(self) -> bytearray:
        """What the parser has handed on and nobody has received yet; no more will come by it."""
        taken: bytearray = self.cycle.body
        self.cycle.body = bytearray()
        return taken

    def read_rest(self, protocol: asyncio.BaseProtocol) -> None:
        """Lets the socket's bytes go to a protocol instead of the parser."""
        self.transport.set_protocol(protocol)
        self.flow.resume_reading()

    def end_rest(self, skipped: memoryview | None) -> None:
        """Lets them go to the parser again, which is told what it has missed, or begins anew."""
        self.transport.set_protocol(self)
        if skipped is None:
            self.parser = PlainParser(self)
            self.on_message_complete()
            return
        self._is_catching_up = True
        self.parser.feed_data(skipped)
        self._is_catching_up = False


class H11Connection(Bounded, H11Protocol):
    """A connection that is read by h11, which bounds what is not whole yet."""

    def is_in_body(self) -> bool:
        """Whether a request's header has come, and not yet all of its body."""
        return self.conn.their_state is h11.SEND_BODY

    def fault(self) -> ProbmapError:
        """Why what came cannot be read."""
        is_too_large = len(self.conn.trailing_data[0]) > self.settings.max_header_bytes
        return _too_large(self.settings) if is_too_large else super().fault()


def bounded(settings: Settings) -> type[Bounded]:
    """The class of connections under these settings."""
    read: type[Bounded] = H11Connection if settings.http_parser == "h11" else HttptoolsConnection
    return type(read.__name__, (read,), {"settings": settings})
