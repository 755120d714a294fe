"""What surrounds every request: its id, its log line, and its errors as problem documents."""

import asyncio
import logging
import time
import uuid
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import Internal, NotReady
from service.responses import error_response
from service.runtime import Runtime

MAX_REQUEST_ID = 128
"""Characters of a request id taken from a client (a count)."""

MAX_PATH = 200
"""Characters of a path that a log line repeats (a count)."""

CLIENT_LEFT = 499
"""The status that is logged when no answer was sent because nobody was there for it."""

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
            _tell(scope, status, time.monotonic() - started)


def _tell(scope: Scope, status: int, seconds: float) -> None:
    """Writes the log line of a request and counts it."""
    state: dict[str, Any] = scope["state"]
    route = _template(scope)
    failure = state.get("failure")
    runtime: Runtime = scope["app"].state.runtime
    metrics = runtime.metrics
    metrics.request(route, scope["method"], status, seconds)
    if failure is not None:
        metrics.failure(failure)
    if status == CLIENT_LEFT:
        metrics.left()
    # As it was sent: percent-encoded, so that no line break gets into the log.
    path = scope.get("raw_path", b"")[:MAX_PATH].decode("ascii", "replace")
    fields = {
        "request_id": state["request_id"],
        "method": scope["method"],
        "route": route or path,
        "code": status,
        "ms": round(seconds * 1000, 3),
        **state.get("asked", {}),
    }
    if failure is not None:
        fields["error"] = failure
    if runtime.tracing is not None and not _is_probe(route):
        name = f"{scope['method']} {route}" if route else scope["method"]
        stages, headers = state.get("stages", ()), dict(Headers(scope=scope))
        fields["trace_id"] = runtime.tracing.record(
            headers, name, _attributes(fields, route), state["arrived"], stages
        )
    text = "%(method)s %(route)s %(code)s %(ms).1f ms %(request_id)s"
    if "asked" in state:
        text += " %(mapping)s %(rows)d × %(classes)d"
    if failure is not None:
        text += " %(error)s"
    # Probes and collectors ask every few seconds: their lines would hide the others.
    level = logging.DEBUG if _is_probe(route) else logging.INFO
    log.log(level, text, fields, extra={"fields": fields})


def _template(scope: Scope) -> str | None:
    """The template of the route that a request took; None: there is no such route."""
    route = scope.get("route")
    if route is None and "endpoint" in scope:
        # Routes that are not FastAPI's own, such as /openapi.json, leave no more than this.
        endpoint = scope["endpoint"]
        routes = scope["app"].routes
        route = next((one for one in routes if getattr(one, "endpoint", None) is endpoint), None)
    return getattr(route, "path", None)


def _is_probe(route: str | None) -> bool:
    return route is not None and (route == "/metrics" or "/health" in route)


def _attributes(fields: dict[str, Any], route: str | None) -> dict[str, Any]:
    """What a span tells of a request, in OpenTelemetry's names where it has one."""
    named = {
        "http.request.method": fields["method"],
        "http.response.status_code": fields["code"],
        "http.route": route,
        "error.type": fields.get("error"),
        "probmap.request_id": fields["request_id"],
        "probmap.mapping": fields.get("mapping"),
        "probmap.rows": fields.get("rows"),
        "probmap.classes": fields.get("classes"),
    }
    return {name: value for name, value in named.items() if value is not None}


def taken_or_made(given: str) -> str:
    """A client's request id where it is short and visible ASCII, else a new one."""
    if 0 < len(given) <= MAX_REQUEST_ID and all("!" <= letter <= "~" for letter in given):
        return given
    return uuid.uuid4().hex
