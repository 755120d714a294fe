"""Traces of a running server, as a collector of OpenTelemetry gets them."""

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from server import ROOT, RunningServer, running_server
from waiting import until

SECRET = 0.123454321
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"


class Collector(ThreadingHTTPServer):
    """Takes what an exporter sends."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.elsewhere: list[str] = []
        super().__init__(("127.0.0.1", 0), Receiver)

    @property
    def spans(self) -> list[Span]:
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


class Receiver(BaseHTTPRequestHandler):
    """One export."""

    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/v1/traces":
            self.server.requests.append(ExportTraceServiceRequest.FromString(body))
        else:
            self.server.elsewhere.append(self.path)
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextmanager
def traced(*flags: str, **variables: str) -> Iterator[tuple[RunningServer, Collector]]:
    """A server, and a collector for it to send its traces to, as it does without flags."""
    collector = Collector()
    thread = threading.Thread(target=collector.serve_forever)
    thread.start()
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}",
        "OTEL_BSP_SCHEDULE_DELAY": "100",
        "OTEL_SERVICE_NAME": "decoder",
        **variables,
    }
    try:
        with running_server(*(flags or ("--traces", "otlp")), **environment) as server:
            yield server, collector
    finally:
        collector.shutdown()
        thread.join()
        collector.server_close()


def seen(collector: Collector, name: str) -> Span:
    """The span of a name, once it has come."""
    until(lambda: any(span.name == name for span in collector.spans))
    return next(span for span in collector.spans if span.name == name)


def attributes(span: Span) -> dict[str, object]:
    """What a span tells, texts and numbers."""
    return {
        entry.key: entry.value.string_value or entry.value.int_value for entry in span.attributes
    }


def test_a_request_is_a_span_with_its_stages_inside() -> None:
    with traced() as (server, collector):
        before = time.time_ns()
        body = {"logits": [[SECRET, 2, 3]] * 2, "mapping": "sparsemax"}
        headers = {"traceparent": f"00-{TRACE}-{CALLER}-01", "x-request-id": "traced"}
        assert httpx.post(f"{server.url}/v1/map", json=body, headers=headers).status_code == 200
        after = time.time_ns()
        span = seen(collector, "POST /v1/map")
        assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, CALLER)
        assert span.kind == Span.SPAN_KIND_SERVER
        assert span.status.code == Status.STATUS_CODE_UNSET
        told = {
            "http.request.method": "POST", "http.route": "/v1/map",
            "http.response.status_code": 200, "probmap.request_id": "traced",
            "probmap.mapping": "sparsemax", "probmap.rows": 2, "probmap.classes": 3,
        }  # fmt: skip
        assert attributes(span) == told
        stages = [seen(collector, name) for name in ("decode", "queue", "compute", "encode")]
        moments = [before, span.start_time_unix_nano]
        for stage in stages:
            assert (stage.trace_id, stage.parent_span_id) == (span.trace_id, span.span_id)
            assert stage.start_time_unix_nano <= stage.end_time_unix_nano
            moments.append(stage.start_time_unix_nano)
        moments += [span.end_time_unix_nano, after]
        # Between two clocks lies less than a millisecond.
        assert all(first <= second + 1e6 for first, second in pairwise(moments))
        (resource,) = collector.requests[0].resource_spans
        named = {entry.key: entry.value.string_value for entry in resource.resource.attributes}
        assert named["service.name"] == "decoder"
        assert str(SECRET) not in str(collector.requests)


def test_failures_are_told_and_probes_are_not_traced() -> None:
    with traced() as (server, collector):
        httpx.get(f"{server.url}/health")
        httpx.get(f"{server.url}/metrics")
        body = {"logits": [None], "mapping": "softmax"}
        assert httpx.post(f"{server.url}/v1/loss", json=body).status_code == 422
        span = seen(collector, "POST /v1/loss")
        assert attributes(span)["error.type"] == "invalid_request"
        assert attributes(span)["http.response.status_code"] == 422
        # How far it came is told, and the probes are not.
        assert {span.name for span in collector.spans} == {"POST /v1/loss", "decode"}


def test_what_is_left_is_sent_when_the_server_stops() -> None:
    with traced() as (server, collector):
        httpx.get(f"{server.url}/v1/mappings")
        assert server.stop() == 0
        seen(collector, "GET /v1/mappings")


@pytest.mark.parametrize("is_listening", [True, False], ids=["silent", "absent"])
def test_a_collector_that_does_not_answer_does_not_keep_the_server(is_listening: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        if not is_listening:
            silent.close()
        with running_server("--traces", "otlp", OTEL_EXPORTER_OTLP_ENDPOINT=address) as server:
            httpx.get(f"{server.url}/v1/mappings")
            told = time.monotonic()
            assert server.stop() == 0
            assert time.monotonic() - told < 7


def test_nothing_is_sent_that_was_not_asked_for() -> None:
    with traced("--traces", "off", FASTAPI_OTEL_AUTO_CONFIGURE="true") as (server, collector):
        httpx.get(f"{server.url}/v1/mappings")
        assert httpx.post(f"{server.url}/v1/map", json={"logits": [None]}).status_code == 422
        assert server.stop() == 0
        assert not collector.requests
        assert not collector.elsewhere


def test_a_line_of_the_log_names_its_trace() -> None:
    with traced("--traces", "otlp", "--log-format", "json") as (server, _):
        headers = {"traceparent": f"00-{TRACE}-{CALLER}-01", "x-request-id": "traced"}
        httpx.get(f"{server.url}/v1/mappings", headers=headers)
        assert server.stop() == 0
        (line,) = (line for line in server.output.splitlines() if '"traced"' in line)
        assert json.loads(line)["trace_id"] == TRACE


WITHOUT = """
import sys
sys.modules["opentelemetry.sdk.trace"] = None
from service import cli
sys.exit(cli.main(["serve", "--port", "0", "--traces", "otlp"]))
"""


def test_traces_that_cannot_be_made_are_refused_with_what_to_install() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2
    assert "pip install 'probmap[otel]'" in done.stderr
