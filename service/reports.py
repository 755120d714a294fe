"""What is left of a request that is over: its log line, its counts and its trace."""

import logging
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Scope

from service.runtime import Runtime
from service.stages import Progress, Stage
from service.stream import Ending

MAX_PATH = 200
"""Characters of a path that a log line repeats (a count)."""

CLIENT_LEFT = 499
"""The status that is logged when no answer was sent because nobody was there for it."""

SWITCHED = 101
"""The status that every WebSocket has."""

log = logging.getLogger("probmap.request")


def report(scope: Scope, status: int, seconds: float) -> None:
    """Counts, traces and logs a request.

    Args:
        scope: the request's.
        status: of its answer; 499 when the client left.
        seconds: from its arrival to the end of its answer.
    """
    state: dict[str, Any] = scope["state"]
    route, failure = _template(scope), state.get("failure")
    _count(scope, route, status, seconds, failure)
    progress: Progress | None = state.get("progress")
    fields = _fields(scope, route, status, seconds)
    text = "%(method)s %(route)s %(code)s %(ms).1f ms %(request_id)s"
    if progress is not None and progress.asked is not None:
        fields |= asdict(progress.asked)
        text += " %(mapping)s %(rows)d × %(classes)d"
    if failure is not None:
        fields["error"] = failure
        text += " %(error)s"
    if not _is_probe(route):
        _trace(scope, route, fields, progress.stages if progress is not None else ())
    # Probes and collectors ask every few seconds: their lines would hide the others.
    level = logging.DEBUG if _is_probe(route) else logging.INFO
    log.log(level, text, fields, extra={"fields": fields})


def report_socket(scope: Scope, ending: Ending) -> None:
    """Counts, traces and logs a WebSocket that is closed."""
    seconds = time.monotonic() - scope["state"]["arrived"]
    route = _template(scope)
    scope = {**scope, "method": "GET"}
    failure = None if ending.error is None else ending.error.code
    _count(scope, route, SWITCHED, seconds, failure)
    fields = _fields(scope, route, SWITCHED, seconds)
    fields |= {"requests": ending.requests, "failed": ending.failed}
    text = "WS %(route)s %(requests)d requests %(failed)d failed %(ms).1f ms %(request_id)s"
    if failure is not None:
        fields["error"] = failure
        text += " %(error)s"
    _trace(scope, route, fields, ())
    log.info(text, fields, extra={"fields": fields})


def _count(
    scope: Scope, route: str | None, status: int, seconds: float, failure: str | None
) -> None:
    metrics = _runtime(scope).metrics
    metrics.observe_request(route, scope["method"], status, seconds)
    if failure is not None:
        metrics.count_failure(failure)
    if status == CLIENT_LEFT:
        metrics.count_departure()


def _fields(scope: Scope, route: str | None, status: int, seconds: float) -> dict[str, Any]:
    """What a log line tells of every request."""
    # As it was sent: percent-encoded, so that no line break gets into the log.
    path = scope.get("raw_path", b"")[:MAX_PATH].decode("ascii", "replace")
    return {
        "request_id": scope["state"]["request_id"],
        "method": scope["method"],
        "route": route or path,
        "code": status,
        "ms": round(seconds * 1000, 3),
    }


def _trace(
    scope: Scope, route: str | None, fields: dict[str, Any], stages: Sequence[Stage]
) -> None:
    """Sends the spans of a request where that is wanted; adds the trace's id to the fields."""
    tracing = _runtime(scope).tracing
    if tracing is None:
        return
    name = f"{scope['method']} {route}" if route else scope["method"]
    headers, attributes = dict(Headers(scope=scope)), _attributes(fields, route)
    arrived = scope["state"]["arrived"]
    fields["trace_id"] = tracing.record(headers, name, attributes, arrived, stages)


def _runtime(scope: Scope) -> Runtime:
    runtime = scope["app"].state.runtime
    assert isinstance(runtime, Runtime)
    return runtime


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
        "probmap.requests": fields.get("requests"),
        "probmap.failed": fields.get("failed"),
    }
    return {name: value for name, value in named.items() if value is not None}
