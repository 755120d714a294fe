"""POST /v1/stream: many requests over one connection."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial

from fastapi import APIRouter, Request, Response
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from mappings.errors import ProbmapError
from schemas.errors import InvalidRequest
from service.body import UnreadBody, check_media_type
from service.content_encoding import coding_of
from service.documentation import LINES_BODY, line_answers
from service.errors import UnsupportedEncoding
from service.lines import lines
from service.runtime import Runtime, runtime_of
from service.stream import Arrived, Stream
from service.wire.jsonl import MEDIA_TYPES, LineExchange, closing

router = APIRouter(tags=["streams"])

EVENTS = "text/event-stream"

SMALL_BYTES = 32 << 10
"""Parts of a line up to this long together (bytes) are sent in one piece."""


@router.post(
    "/v1/stream",
    response_class=Response,
    responses=line_answers(400, 413, 415, 422, 429, 503),
    openapi_extra=LINES_BODY,
)
async def stream_lines(request: Request) -> Response:
    """Answers a request a line, as JSON lines or server-sent events, as they are ready."""
    runtime = runtime_of(request)
    try:
        check_media_type(request.headers.get("content-type", ""), MEDIA_TYPES)
        if coding_of(request.headers.get("content-encoding", "")) is not None:
            raise UnsupportedEncoding("a stream is not read compressed; send it as it is")
        is_in_order = _is_in_order(request)
        place = runtime.admission.enter()
    except ProbmapError as error:
        raise UnreadBody(error) from None
    place.release()
    as_events = EVENTS in request.headers.get("accept", "")
    return LineResponse(
        runtime, request.state.request_id, in_order=is_in_order, as_events=as_events
    )


class LineResponse(Response):
    """The answers of a stream, sent while its requests are still coming."""

    def __init__(
        self, runtime: Runtime, request_id: str, *, in_order: bool, as_events: bool
    ) -> None:
        media_type = EVENTS if as_events else MEDIA_TYPES[0]
        super().__init__(media_type=media_type)
        self.raw_headers = [
            (b"content-type", media_type.encode()),
            (b"cache-control", b"no-store"),
            # Proxies that collect answers would hold the stream up.
            (b"x-accel-buffering", b"no"),
        ]
        self._runtime = runtime
        self._request_id = request_id
        self._stream = Stream(runtime, request_id, in_order=in_order)
        self._frame = (b"data: ", b"\n\n") if as_events else (b"", b"\n")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Reads and answers until both are done; one task alone owns `receive`."""
        stream = self._stream
        place = self._runtime.admission.enter()
        reading = asyncio.ensure_future(
            stream.read(self._arriving(receive), partial(_gone, receive))
        )
        try:
            start = {"status": self.status_code, "headers": self.raw_headers}
            await send({"type": "http.response.start", **start})
            async for encoded in stream.answers():
                await self._send(send, encoded.parts)
            ending = stream.ending
            last = closing(ending.requests, ending.failed, ending.error, self._request_id)
            await self._send(send, [last])
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            reading.cancel()
            stream.close()
            place.release()

    async def _arriving(self, receive: Receive) -> AsyncIterator[Arrived]:
        settings, closing = self._runtime.settings, self._runtime.admission.closing
        arriving = lines(receive, settings.max_body_bytes, settings.stream_idle_seconds, closing)
        index = 0
        async for line in arriving:
            yield Arrived(LineExchange(index, settings), line)
            index += 1

    async def _send(self, send: Send, parts: Sequence[bytes | memoryview]) -> None:
        """Sends a line; raises ClientDisconnect when the client has read nothing for too long."""
        try:
            for part in self._framed(parts):
                async with asyncio.timeout(self._runtime.settings.stream_idle_seconds):
                    await send({"type": "http.response.body", "body": part, "more_body": True})
        except TimeoutError:
            raise ClientDisconnect from None

    def _framed(self, parts: Sequence[bytes | memoryview]) -> Sequence[bytes | memoryview]:
        framed = [self._frame[0], *parts, self._frame[1]]
        if sum(map(len, framed)) <= SMALL_BYTES:
            return [b"".join(framed)]
        return [part for part in framed if part]


async def _gone(receive: Receive) -> None:
    """Returns when the client has left: nothing else can come behind a body."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _is_in_order(request: Request) -> bool:
    """Whether the answers come in the order of the requests, or as they are ready."""
    for name in request.query_params:
        if name != "order":
            raise InvalidRequest.at(("query", name[:64]), "the query takes order and nothing else")
    given = request.query_params.get("order", "input")
    if given not in ("input", "completion"):
        raise InvalidRequest.at(("query", "order"), "order should be input or completion")
    return given == "input"
