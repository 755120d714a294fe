"""What surrounds every request: its id, and its errors as problem documents."""

import asyncio
import logging
import time
import uuid

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import Internal, NotReady
from service.reports import CLIENT_LEFT, report
from service.response_headers import secured
from service.responses import error_response

MAX_REQUEST_ID = 128
"""Characters of a request id taken from a client (a count)."""

log = logging.getLogger("probmap.request")


class RequestMiddleware:
    """Gives each request an id, answers its errors, and has it reported."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        request_id = taken_or_made(Headers(scope=scope).get("x-request-id", ""))
        started = time.monotonic()
        scope.setdefault("state", {}).update(request_id=request_id, arrived=started)
        if scope["type"] == "websocket":
            await self.app(scope, receive, send)
            return
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*secured(message["headers"]), (b"x-request-id", request_id.encode())]
                message = {**message, "headers": headers}
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        except ClientDisconnect:
            status = CLIENT_LEFT
        except asyncio.CancelledError:
            # The time in which the server had to stop is over.
            if not status:
                stopped = NotReady("the server stopped before this request was answered")
                await error_response(stopped, request_id)(scope, receive, send_with_id)
        except Exception as error:
            # Whatever it is, the client gets a problem document; `error_response` logs it.
            if status:
                log.exception("request %s failed after its answer had begun", request_id)
                scope["state"]["failure"] = Internal.code
                raise
            await error_response(error, request_id)(scope, receive, send_with_id)
        finally:
            report(scope, status, time.monotonic() - started)


def taken_or_made(given: str) -> str:
    """A client's request id where it is short and visible ASCII, else a new one."""
    if 0 < len(given) <= MAX_REQUEST_ID and all("!" <= letter <= "~" for letter in given):
        return given
    return uuid.uuid4().hex
