"""What every evaluation route does: read the body, answer it, stop when the client leaves."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from fastapi import Request, Response
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from mappings.errors import ProbmapError
from schemas import request as schemas
from schemas.errors import InvalidRequest
from service.answering import answer
from service.body import UnreadBody, read_body
from service.content_encoding import asked_coding
from service.responses import EvaluatedResponse
from service.runtime import runtime_of
from service.stages import Progress
from service.wire.exchange import MAX_TIMEOUT_SECONDS, Exchange
from service.wire.negotiation import FORMATS, negotiated

T = TypeVar("T")

FAILURES = (400, 404, 408, 413, 415, 422, 429, 500, 503, 504, 507)
"""The statuses that an evaluation can fail with."""

TIMEOUT_HEADER = "x-request-timeout-ms"
MAX_TIMEOUT_MS = 1000 * MAX_TIMEOUT_SECONDS


async def evaluate_as(request: Request, model: type[schemas.Request]) -> Response:
    """Answers a request of one model in the formats that its headers name.

    Raises:
        UnreadBody: Accept excludes every format; and as `evaluate`.
    """
    content_type = request.headers.get("content-type", "")
    accept = ",".join(request.headers.getlist("accept"))
    try:
        exchange = negotiated(content_type, accept, model, runtime_of(request).settings)
    except ProbmapError as error:
        raise UnreadBody(error) from None
    return await evaluate(request, exchange, tuple(FORMATS))


async def evaluate(
    request: Request, exchange: Exchange, media_types: Sequence[str] | None = None
) -> Response:
    """Answers a request on its wire; holds a permit until the answer is sent.

    Args:
        request: its body is not read yet.
        exchange: the request's.
        media_types: what the wire reads, the first where nothing is said; None: anything.

    Raises:
        UnreadBody: the request is refused before its body is read to the end.
        ProbmapError: the body is malformed, over a limit, or asks for what cannot be.
        ClientDisconnect: the client left.
    """
    runtime = runtime_of(request)
    progress = request.state.progress = Progress(request.state.arrived)
    try:
        deadline = _deadline(request)
        permit = runtime.admission.enter()
    except ProbmapError as error:
        raise UnreadBody(error) from None
    try:
        body = await read_body(
            request.scope,
            request.receive,
            runtime.settings,
            permit,
            runtime.transcode,
            media_types=media_types,
            rooms=runtime.rooms if exchange.takes_views else None,
        )
        work = answer(
            runtime,
            exchange,
            body,
            permit,
            progress,
            deadline=deadline,
            coding=asked_coding(",".join(request.headers.getlist("accept-encoding"))),
        )
        del body
        encoded = await _while_connected(request.receive, work)
        return EvaluatedResponse(encoded, progress.stages, permit)
    except BaseException:
        permit.release()
        raise


async def _while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The outcome of some work, which is stopped when the client leaves.

    Raises:
        ClientDisconnect: it left.
    """
    working = asyncio.ensure_future(work)
    # The body is read: what comes now, if anything, is that the client has left.
    leaving = asyncio.ensure_future(receive())
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnect
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


def _deadline(request: Request) -> float | None:
    """When the answer is due (seconds of time.monotonic); None: whenever it is ready."""
    given = request.headers.get(TIMEOUT_HEADER)
    if given is None:
        return None
    if not given.isascii() or not given.isdecimal() or not 0 < int(given[:10]) <= MAX_TIMEOUT_MS:
        message = (
            "X-Request-Timeout-Ms should be a whole number of milliseconds, "
            f"1 to {MAX_TIMEOUT_MS:,}"
        )
        raise InvalidRequest.at(("header", "X-Request-Timeout-Ms"), message)
    arrived: float = request.state.arrived
    return arrived + int(given[:10]) / 1000
