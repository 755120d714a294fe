"""POST /v1/stream: many requests over one connection."""

import asyncio
import importlib

from fastapi import APIRouter, Request, Response

from mappings.errors import ProbmapError
from schemas.errors import InvalidRequest
from service.body import UnreadBody, check_media_type
from service.content_encoding import coding_of
from service.documentation import STREAM_BODY, stream_answers
from service.errors import UnsupportedEncoding, UnsupportedMediaType
from service.line_format import EVENTS, LineFormat
from service.runtime import Runtime, runtime_of
from service.stream_query import check_query, is_in_order
from service.stream_response import StreamFormat, StreamResponse
from service.wire.arrow_framing import MEDIA_TYPE as ARROW
from service.wire.jsonl import MEDIA_TYPES as LINES

router = APIRouter(tags=["streams"])


@router.post(
    "/v1/stream",
    response_class=Response,
    responses=stream_answers(400, 413, 415, 422, 429, 503),
    openapi_extra=STREAM_BODY,
)
async def stream(request: Request) -> Response:
    """Answers a request a line, or a record batch, as they are ready."""
    runtime = runtime_of(request)
    try:
        content_type = request.headers.get("content-type", "")
        check_media_type(content_type, (*LINES, ARROW))
        if coding_of(request.headers.get("content-encoding", "")) is not None:
            raise UnsupportedEncoding("a stream is not read compressed; send it as it is")
        runtime.admission.enter().release()
        in_order = is_in_order(request.query_params)
        if content_type.partition(";")[0].strip().lower() == ARROW:
            form = await _arrow_format(runtime, request, in_order=in_order)
        else:
            form = _line_format(runtime, request)
    except ProbmapError as error:
        raise UnreadBody(error) from None
    return StreamResponse(runtime, request.state.request_id, form, in_order=in_order)


def _line_format(runtime: Runtime, request: Request) -> StreamFormat:
    check_query(request.query_params)
    as_events = EVENTS in request.headers.get("accept", "")
    return LineFormat(runtime, request.state.request_id, as_events=as_events)


async def _arrow_format(runtime: Runtime, request: Request, *, in_order: bool) -> StreamFormat:
    if not in_order:
        message = "batches are answered in order; leave order out, or send JSON lines"
        raise InvalidRequest.at(("query", "order"), message)
    try:
        # Arrow's library is an extra, and takes a while to load.
        module = await asyncio.to_thread(importlib.import_module, "service.arrow_format")
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        raise UnsupportedMediaType(
            f"{ARROW} needs pyarrow, which the server does not have: pip install 'probmap[arrow]'"
        ) from None
    query = [pair for pair in request.query_params.multi_items() if pair[0] != "order"]
    form: StreamFormat = await module.read_format(
        runtime, request.state.request_id, request.receive, query
    )
    return form
