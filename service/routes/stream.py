"""POST /v1/stream: many requests over one connection."""

import asyncio

from fastapi import APIRouter, Request, Response
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from mappings.errors import ProbmapError
from schemas.errors import InvalidRequest
from service.body import UnreadBody, check_media_type
from service.content_encoding import coding_of
from service.documentation import problems
from service.errors import UnsupportedEncoding
from service.runtime import Runtime, runtime_of
from service.stream import LineStream, Parts
from service.wire.jsonl import MEDIA_TYPES

router = APIRouter(tags=["streams"])

EVENTS = "text/event-stream"

SMALL_BYTES = 32 << 10
"""Parts of a line up to this long together (bytes) are sent in one piece."""


@router.post("/v1/stream", responses=problems(400, 413, 415, 422, 429, 503))
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
    stream = LineStream(runtime, request.state.request_id, in_order=is_in_order)
    as_events = EVENTS in request.headers.get("accept", "")
    return LineResponse(runtime, stream, as_events=as_events)


class LineResponse(Response):
    """The answers of a stream, sent while its requests are still coming."""

    def __init__(self, runtime: Runtime, stream: LineStream, *, as_events: bool) -> None:
        media_type = EVENTS if as_events else MEDIA_TYPES[0]
        super().__init__(media_type=media_type)
        self.raw_headers = [
            (b"content-type", media_type.encode()),
            (b"cache-control", b"no-store"),
            # Proxies that collect answers would hold the stream up.
            (b"x-accel-buffering", b"no"),
        ]
        self._stream = stream
        self._runtime = runtime
        self._frame = (b"data: ", b"\n\n") if as_events else (b"", b"\n")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Reads and answers until both are done; one task alone owns `receive`."""
        place = self._runtime.admission.enter()
        reading = asyncio.ensure_future(self._stream.read(receive))
        try:
            start = {"status": self.status_code, "headers": self.raw_headers}
            await send({"type": "http.response.start", **start})
            async for parts in self._stream.answers():
                for part in self._framed(parts):
                    body = {"type": "http.response.body", "body": part, "more_body": True}
                    async with asyncio.timeout(self._runtime.settings.stream_idle_seconds):
                        await send(body)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            # The client has read nothing for so long that it counts as gone.
            raise ClientDisconnect from None
        finally:
            reading.cancel()
            self._stream.close()
            place.release()

    def _framed(self, parts: Parts) -> Parts:
        framed = [self._frame[0], *parts, self._frame[1]]
        if sum(map(len, framed)) <= SMALL_BYTES:
            return [b"".join(framed)]
        return [part for part in framed if part]


def _is_in_order(request: Request) -> bool:
    """Whether the answers come in the order of the requests, or as they are ready."""
    for name in request.query_params:
        if name != "order":
            raise InvalidRequest.at(("query", name[:64]), "the query takes order and nothing else")
    given = request.query_params.get("order", "input")
    if given not in ("input", "completion"):
        raise InvalidRequest.at(("query", "order"), "order should be input or completion")
    return given == "input"
