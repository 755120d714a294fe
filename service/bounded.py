"""What bounds an HTTP connection: their number, the time of a header, what is left unread."""

import asyncio
import uuid
from typing import Any, Literal

import orjson
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from mappings.errors import ProbmapError
from service.errors import (
    STATUS,
    HeaderTimeout,
    MalformedRequest,
    Overloaded,
    problem,
)
from service.response_headers import secured
from service.settings import Settings, allowance, flag

RETRY_SECONDS = 1
"""When a client whose connection finds no room is told to try again (seconds)."""

LOST = "connection_lost"
"""Where the state of a request's scope has the event that its connection is lost."""

Waiting = Literal["nothing", "request", "header", "rest"]
"""What a connection waits for: nothing while it is answered, else a request, the end of a header,
or the rest of a body that was answered before it was read."""


class Bounded(asyncio.Protocol):
    """What bounds a connection, whatever reads its requests.

    While a request is answered, its body is bounded where it is read; between two requests uvicorn
    closes what is idle. All else that may last is bounded here.
    """

    settings: Settings
    # What uvicorn's classes have:
    transport: Any
    config: Any
    connections: Any
    loop: Any
    cycle: Any
    app_state: dict[str, Any]

    _waiting: Waiting = "nothing"
    _timer: asyncio.TimerHandle | None = None
    _stall: asyncio.TimerHandle | None = None

    def is_in_body(self) -> bool:
        """Whether a request's header has come, and not yet all of its body."""
        raise NotImplementedError

    def fault(self) -> ProbmapError:
        """Why what came cannot be read."""
        return MalformedRequest("what came is no HTTP/1.1 request")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Takes the connection, or refuses it when there are too many."""
        # While nothing of a body is read, its reader does not learn that the client has left.
        self.app_state = {**self.app_state, LOST: asyncio.Event()}
        super().connection_made(transport)
        limit = self.settings.max_connections
        if len(self.connections) > limit:
            detail = f"there are too many connections; {allowance('max_connections', limit)}"
            self.refuse(Overloaded(detail, RETRY_SECONDS))
        else:
            self._wait("request")

    def connection_lost(self, exc: Exception | None) -> None:
        """Forgets the connection."""
        self.app_state[LOST].set()
        self._wait("nothing")
        self._watch_no_more()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Reads on; what has begun then has to come to its end."""
        super().data_received(data)
        if self not in self.connections or self.transport.is_closing() or self._is_answered():
            # A WebSocket has a protocol of its own, which is in `connections` instead.
            self._wait("nothing")
        elif self.is_in_body():
            self._wait("rest")
        elif self._waiting == "rest":
            self._wait("request")
        else:
            self._wait("header")

    def on_response_complete(self) -> None:
        """Goes on to what comes behind an answer."""
        super().on_response_complete()  # type: ignore[misc]
        if self.is_in_body() and not self._is_answered() and not self.transport.is_closing():
            self._wait("rest")

    def pause_writing(self) -> None:
        """Waits until the client has read, as long as it reads at all."""
        super().pause_writing()
        self._watch(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Goes on: the client has read."""
        self._watch_no_more()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Refuses what cannot be read, when uvicorn asks to."""
        self.refuse(self.fault())

    def refuse(self, error: ProbmapError) -> None:
        """Answers with an error and closes the connection."""
        self._wait("nothing")
        if self.transport.is_closing():
            return
        self.config.app.state.runtime.metrics.count_failure(error.code)
        if self._is_answered() and self.cycle.response_started:
            # What would be written now, the client would take for a part of its answer.
            self.transport.abort()
            return
        body = orjson.dumps(problem(error, uuid.uuid4().hex))
        headers = [
            (b"content-type", b"application/problem+json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        if isinstance(error, Overloaded):
            headers.append((b"retry-after", b"%d" % error.retry_after))
        lines = b"".join(b"%b: %b\r\n" % header for header in secured(headers))
        self.transport.write(STATUS_LINE[STATUS[error.code]] + lines + b"\r\n" + body)
        self.transport.close()

    def _is_answered(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self, what: Waiting) -> None:
        """Gives what is waited for its time, from now on unless it was waited for already."""
        if what == self._waiting:
            return
        self._waiting = what
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        seconds = {
            "request": self.settings.keep_alive_seconds,
            "header": self.settings.header_timeout_seconds,
            "rest": self.settings.body_timeout_seconds,
        }
        if what != "nothing":
            self._timer = self.loop.call_later(seconds[what], self._expire)

    def _expire(self) -> None:
        if self._waiting == "header":
            seconds = self.settings.header_timeout_seconds
            self.refuse(
                HeaderTimeout(
                    f"the header did not arrive within {seconds:g} seconds "
                    f"({flag('header_timeout_seconds')} of the server sets this time)"
                )
            )
        else:
            self.transport.close()

    def _watch(self, unread: int) -> None:
        seconds = self.settings.stream_idle_seconds
        self._stall = self.loop.call_later(seconds, self._look, unread)

    def _watch_no_more(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _look(self, before: int) -> None:
        """Ends the connection if nothing of what was unread before has been read since."""
        unread = self.transport.get_write_buffer_size()
        if unread < before:
            self._watch(unread)
        else:
            # To close it would mean to wait for the client once more.
            self.transport.abort()
