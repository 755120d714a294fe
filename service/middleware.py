"""What surrounds every request: its id, its log line, and its errors as problem documents."""

import logging
import time
import uuid

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.responses import error_response

MAX_REQUEST_ID = 128
"""Characters of a request id taken from a client (a count)."""

MAX_PATH = 200
"""Characters of a path that a log line repeats (a count)."""

log = logging.getLogger("probmap.request")


class RequestMiddleware:
    """Gives each request an id, answers its errors and logs a line."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = taken_or_made(Headers(scope=scope).get("x-request-id", ""))
        started = time.monotonic()
        scope.setdefault("state", {}).update(request_id=request_id, arrived=started)
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message["headers"], (b"x-request-id", request_id.encode())]
                message = {**message, "headers": headers}
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        except ClientDisconnect:
            status = 499
        except Exception as error:
            # Whatever it is, the client gets a problem document; `error_response` logs it.
            if status:
                log.exception("request %s failed after its answer had begun", request_id)
                raise
            await error_response(error, request_id)(scope, receive, send_with_id)
        finally:
            milliseconds = (time.monotonic() - started) * 1000
            fields = {"request_id": request_id, "status": status, "ms": round(milliseconds, 3)}
            # As it was sent: percent-encoded, so that no line break gets into the log.
            path = scope.get("raw_path", b"")[:MAX_PATH].decode("ascii", "replace")
            fields |= {"method": scope["method"], "path": path}
            # Probes ask every few seconds: their lines would hide the others.
            is_probe = "/health" in path
            log.log(
                logging.DEBUG if is_probe else logging.INFO,
                "%(method)s %(path)s %(status)s %(ms).1f ms %(request_id)s",
                fields,
                extra={"fields": fields},
            )


def taken_or_made(given: str) -> str:
    """A client's request id where it is short and visible ASCII, else a new one."""
    if 0 < len(given) <= MAX_REQUEST_ID and all("!" <= letter <= "~" for letter in given):
        return given
    return uuid.uuid4().hex
