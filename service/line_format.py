"""Streams of JSON lines, answered as lines or as server-sent events."""

from collections.abc import AsyncIterator

from starlette.types import Receive

from service.lines import lines
from service.runtime import Runtime
from service.stream import Arrived, Ending
from service.stream_response import Parts
from service.wire.jsonl import MEDIA_TYPES, LineExchange, closing

EVENTS = "text/event-stream"


class LineFormat:
    """One stream of lines."""

    opening = b""

    def __init__(self, runtime: Runtime, request_id: str, *, as_events: bool) -> None:
        self.media_type = EVENTS if as_events else MEDIA_TYPES[0]
        self._runtime = runtime
        self._request_id = request_id
        self._frame = (b"data: ", b"\n\n") if as_events else (b"", b"\n")

    async def arriving(self, receive: Receive) -> AsyncIterator[Arrived]:
        """The requests as they come, one a line."""
        settings, ending = self._runtime.settings, self._runtime.admission.closing
        arriving = lines(receive, settings.max_body_bytes, settings.stream_idle_seconds, ending)
        index = 0
        async for line in arriving:
            yield Arrived(LineExchange(index, settings), line)
            index += 1

    def framed(self, parts: Parts) -> Parts:
        """An answer as one line, or one event."""
        return [self._frame[0], *parts, self._frame[1]]

    def closing(self, ending: Ending) -> Parts:
        """The line that tells how the stream ended."""
        last = closing(ending.requests, ending.failed, ending.error, self._request_id)
        return self.framed([last])
