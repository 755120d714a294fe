"""Responses: JSON in bounded messages, and problems."""

import asyncio
import logging
from collections.abc import Sequence

import orjson
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mappings.errors import ProbmapError
from service.body import UnreadBody
from service.engine.admission import Permit
from service.errors import (
    STATUS,
    Internal,
    MethodNotAllowed,
    NotFound,
    NotReady,
    Overloaded,
    Unauthorized,
    problem,
)
from service.stages import Stage
from service.wire.exchange import Encoded, Headers

log = logging.getLogger("probmap.request")

DRAIN_SECONDS = 2.0
"""How long the rest of a refused body is read and dropped, so that its sender sees the answer."""


class BodyResponse(Response):
    """A response whose body is ready, sent in the parts it is given in."""

    def __init__(self, body: Encoded, *, status: int = 200, headers: Headers = ()) -> None:
        super().__init__(status_code=status)
        self.parts = body.parts
        self.raw_headers = [
            (b"content-type", body.media_type.encode()),
            (b"content-length", b"%d" % body.size),
            *body.headers,
            *headers,
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the response."""
        start = {"status": self.status_code, "headers": self.raw_headers}
        await send({"type": "http.response.start", **start})
        for part in self.parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await self.finish(receive)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def finish(self, receive: Receive) -> None:
        """What is done between the last byte of the response and its end."""


class ProblemResponse(BodyResponse):
    """The answer to a request that failed."""

    def __init__(self, error: ProbmapError, request_id: str, *, headers: Headers = ()) -> None:
        body = Encoded([orjson.dumps(problem(error, request_id))], "application/problem+json")
        if isinstance(error, Overloaded | NotReady) and error.retry_after is not None:
            headers = [*headers, (b"retry-after", b"%d" % error.retry_after)]
        if isinstance(error, Unauthorized):
            headers = [*headers, (b"www-authenticate", b'Bearer realm="probmap"')]
        super().__init__(body, status=STATUS[error.code], headers=headers)
        self.code = error.code

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the response, and leaves the error's code where the request is logged."""
        scope.setdefault("state", {})["failure"] = self.code
        await super().__call__(scope, receive, send)


class RefusedBodyResponse(ProblemResponse):
    """The answer to a request whose body was not read to its end.

    The connection cannot be used again. Were it closed at once, the bytes still on their way
    would make the network drop the answer too: so they are read and dropped for a moment.
    """

    def __init__(self, error: ProbmapError, request_id: str) -> None:
        super().__init__(error, request_id, headers=[(b"connection", b"close")])

    async def finish(self, receive: Receive) -> None:
        """Reads and drops what is still coming, for a moment."""
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                while (await receive()).get("more_body", False):
                    pass
        except TimeoutError:
            pass


class EvaluatedResponse(BodyResponse):
    """An evaluation, with the times it took; its permit is given back once it is sent."""

    def __init__(self, body: Encoded, stages: Sequence[Stage], permit: Permit) -> None:
        timing = ", ".join(f"{stage.name};dur={stage.seconds * 1000:.3f}" for stage in stages)
        super().__init__(body, headers=[(b"server-timing", timing.encode())])
        self.permit = permit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the response."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.permit.release()


def json_response(value: object, *, headers: Headers = ()) -> BodyResponse:
    """A small value as JSON."""
    return BodyResponse(Encoded([orjson.dumps(value)], "application/json"), headers=headers)


def error_response(error: Exception, request_id: str) -> BodyResponse:
    """The answer to any error; one that the client did not cause is logged with its traceback."""
    if isinstance(error, UnreadBody):
        return RefusedBodyResponse(error.reason, request_id)
    if isinstance(error, ProbmapError):
        return ProblemResponse(error, request_id)
    if isinstance(error, HTTPException) and error.status_code == 404:
        absent = NotFound("nothing is at this path; /docs lists what there is")
        return ProblemResponse(absent, request_id)
    if isinstance(error, HTTPException) and error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        refused = MethodNotAllowed(f"this path takes {allowed}")
        return ProblemResponse(refused, request_id, headers=[(b"allow", allowed.encode())])
    log.error("request %s failed", request_id, exc_info=error)
    return ProblemResponse(Internal(), request_id)
