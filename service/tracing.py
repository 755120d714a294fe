"""Traces of requests for OpenTelemetry: a span a request, and one a stage of its answer."""

import threading
import time
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from service.settings import Settings, flag
from service.stages import Stage
from service.version import release

SERVER_ERROR = 500
"""The first status that is the server's fault."""

CLOSE_SECONDS = 3.0
"""How long spans that are left get to be sent when the server stops (seconds)."""


class Tracing:
    """Sends spans to where the OTEL_* environment variables say.

    Spans are made when a request is over, from the times it took: nothing is done before that.
    """

    def __init__(self) -> None:
        """Sets the exporter up.

        Raises:
            ModuleNotFoundError: the extra `otel` is not installed.
        """
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        named = Resource.create({SERVICE_NAME: "probmap", SERVICE_VERSION: release()})
        # What OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say goes before our own.
        self._provider = TracerProvider(
            resource=named.merge(Resource.create()), shutdown_on_exit=False
        )
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("probmap", release())
        self._context = TraceContextTextMapPropagator()

    def record(
        self,
        headers: dict[str, str],
        name: str,
        attributes: dict[str, Any],
        started: float,
        stages: Sequence[Stage],
    ) -> str:
        """Sends the spans of a request that is over; returns the trace's id, in 32 hex digits.

        Args:
            headers: the request's; `traceparent` continues a trace.
            name: method and route.
            attributes: what to tell of the request; never its logits.
            started: when it came (seconds of time.monotonic).
            stages: of its answer.
        """
        from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

        # Spans want the time of day, which may jump; the stages were measured without.
        offset = time.time_ns() - time.monotonic_ns()

        def moment(seconds: float) -> int:
            return round(seconds * 1e9) + offset

        span = self._tracer.start_span(
            name,
            context=self._context.extract(headers),
            kind=SpanKind.SERVER,
            attributes=attributes,
            start_time=moment(started),
        )
        if attributes["http.response.status_code"] >= SERVER_ERROR:
            span.set_status(Status(StatusCode.ERROR))
        inside = set_span_in_context(span)
        for stage in stages:
            part = self._tracer.start_span(stage.name, inside, start_time=moment(stage.started))
            part.end(moment(stage.started + stage.seconds))
        span.end()
        return f"{span.get_span_context().trace_id:032x}"

    def close(self) -> None:
        """Sends what is left; what a collector does not take within seconds is lost."""
        # By itself the library waits half a minute for a collector that does not answer, and
        # longer than a server has to stop.
        closing = threading.Thread(target=self._provider.shutdown, name="traces", daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)


def check_installed(settings: Settings) -> None:
    """Raises ValueError when the settings ask for traces and nothing is there to make them."""
    if settings.traces == "off":
        return
    try:
        import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
        import_module("opentelemetry.sdk.trace")
    except ModuleNotFoundError:
        raise ValueError(
            f"{flag('traces')} {settings.traces} needs OpenTelemetry; pip install 'probmap[otel]'"
        ) from None
