"""GET /metrics of a running server: what moves, what it is called, and that labels stay few."""

import random
import re
import socket
import string
from collections.abc import Iterator
from http.client import HTTPConnection
from types import SimpleNamespace

import httpx
import pytest
import torch
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

from faults import MARK
from mappings.registry import MAPPINGS
from server import ROOT, RunningServer, faulty_server, metric
from service.errors import STATUS
from service.runtime import Runtime
from service.settings import Settings
from waiting import until

METHODS = ("PROPFIND", "MKCOL", "LOCK", "REPORT", "PURGE", "TRACE", "SEARCH", "NOTIFY")
"""Methods that the parser knows and no route has."""

BASE_UNITS = ("seconds", "bytes", "rows", "elements", "requests", "ready", "up", "info", "total")
"""What the name of a metric of ours may end in."""


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """A server with the faulty mapping."""
    limits = ("--max-inflight-rows", "1234", "--max-inflight-bytes", "56789012")
    with faulty_server(*limits) as running:
        yield running


def families(server: RunningServer) -> dict[str, Metric]:
    """Every family of metrics by its name."""
    text = httpx.get(f"{server.url}/metrics").text
    return {family.name: family for family in text_string_to_metric_families(text)}


def series(server: RunningServer) -> int:
    """How many series there are."""
    return sum(len(family.samples) for family in families(server).values())


def mapped(server: RunningServer, **fields: object) -> httpx.Response:
    body = {"logits": [[1.0, 2.0, 3.0]], "mapping": "softmax", **fields}
    return httpx.post(f"{server.url}/v1/map", json=body, timeout=30)


def test_every_name_says_what_it_counts_and_in_which_unit(server: RunningServer) -> None:
    mapped(server)
    ours = {name: found for name, found in families(server).items() if name.startswith("probmap")}
    assert len(ours) >= 18
    for name, family in ours.items():
        assert re.fullmatch(r"[a-z_]+", name)
        assert family.documentation.endswith(".")
        sample = f"{name}_total" if family.type == "counter" else name
        assert sample.endswith(BASE_UNITS), sample
        if family.type != "counter":
            assert not name.endswith("total")


@pytest.mark.parametrize(
    "name",
    [
        "probmap_request_duration_seconds", "probmap_queue_duration_seconds",
        "probmap_compute_duration_seconds", "probmap_batch_rows", "probmap_batch_elements",
        "probmap_queue_rows", "probmap_inflight_bytes", "probmap_rejected", "probmap_build_info",
        "process_resident_memory_bytes",
    ],
)  # fmt: skip
def test_what_dashboards_rely_on_is_there(server: RunningServer, name: str) -> None:
    mapped(server)
    assert name in families(server)


def test_both_formats_of_prometheus_are_spoken(server: RunningServer) -> None:
    plain = httpx.get(f"{server.url}/metrics")
    assert plain.headers["content-type"].startswith("text/plain")
    asked = {"accept": "application/openmetrics-text; version=1.0.0"}
    opened = httpx.get(f"{server.url}/metrics", headers=asked)
    assert opened.headers["content-type"].startswith("application/openmetrics-text")
    read = openmetrics_families(opened.text)  # type: ignore[no-untyped-call]
    names = {family.name for family in read}
    assert "probmap_batch_rows" in names


def test_a_request_is_counted_under_its_route(server: RunningServer) -> None:
    labels = {"route": "/v1/mappings/{name}", "method": "GET", "code": "200"}
    name = "probmap_request_duration_seconds_count"
    before = metric(server, name, **labels)
    for mapping in ("softmax", "entmax"):
        httpx.get(f"{server.url}/v1/mappings/{mapping}")
    assert metric(server, name, **labels) == before + 2


def test_what_is_no_route_of_ours_but_is_there_has_its_own_name(server: RunningServer) -> None:
    labels = {"route": "/openapi.json", "method": "GET", "code": "200"}
    assert httpx.get(f"{server.url}/openapi.json", timeout=30).status_code == 200
    assert metric(server, "probmap_request_duration_seconds_count", **labels) == 1


def test_an_evaluation_is_seen_in_every_stage(server: RunningServer) -> None:
    names = {
        "probmap_queue_duration_seconds_count": 1,
        "probmap_compute_duration_seconds_count": 1,
        "probmap_batch_rows_sum": 2,
        "probmap_batch_elements_sum": 6,
        "probmap_batch_requests_sum": 1,
    }
    before = {name: metric(server, name) for name in names}
    assert mapped(server, logits=[[1, 2, 3]] * 2).status_code == 200
    for name, moved in names.items():
        assert metric(server, name) == before[name] + moved, name
    assert metric(server, "probmap_queue_duration_seconds_count", mapping="softmax") >= 1


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"mapping": "nope"}, "unknown_name"),
        ({"logits": "x"}, "invalid_request"),
        ({"logits": [[None, None]]}, "invalid_row"),
        ({"logits": [MARK, 1], "mapping": {"name": "faulty", "fault": "error"}}, "internal_error"),
        ({"logits": [MARK, 1], "mapping": {"name": "faulty", "fault": "memory"}}, "out_of_memory"),
    ],
)
def test_a_failure_is_counted_by_its_reason(
    server: RunningServer, fields: dict[str, object], reason: str
) -> None:
    before = metric(server, "probmap_failed_total", reason=reason)
    assert mapped(server, **fields).status_code >= 400
    assert metric(server, "probmap_failed_total", reason=reason) == before + 1


def test_every_reason_is_there_before_it_happens(server: RunningServer) -> None:
    found = families(server)

    def reasons(name: str) -> set[str]:
        return {sample.labels["reason"] for sample in found[name].samples}

    assert reasons("probmap_failed") == set(STATUS)
    assert reasons("probmap_cancelled") == {"disconnected", "deadline"}
    assert reasons("probmap_rejected") == {"bytes", "rows", "draining"}


def test_what_requests_may_hold_is_told_beside_what_they_hold(server: RunningServer) -> None:
    for resource, most in (("rows", 1234), ("bytes", 56789012)):
        assert metric(server, f"probmap_inflight_limit_{resource}") == most


def test_who_leaves_and_whose_time_is_up_are_counted(server: RunningServer) -> None:
    slow = {"logits": [1, 2], "mapping": {"name": "faulty", "fault": "slow", "seconds": 1.0}}
    before = metric(server, "probmap_cancelled_total", reason="deadline")
    late = httpx.post(f"{server.url}/v1/map", json=slow, headers={"X-Request-Timeout-Ms": "100"})
    assert late.status_code == 504
    assert metric(server, "probmap_cancelled_total", reason="deadline") == before + 1
    before = metric(server, "probmap_cancelled_total", reason="disconnected")
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{server.url}/v1/map", json=slow, timeout=0.3)
    until(lambda: metric(server, "probmap_cancelled_total", reason="disconnected") == before + 1)


def test_random_paths_and_methods_make_no_new_series(server: RunningServer) -> None:
    chance = random.Random(0)

    def word() -> str:
        return "".join(chance.choices(string.ascii_letters, k=12))

    def target() -> str:
        return chance.choice([f"/{word()}", f"/v1/mappings/{word()}", f"/v1/{word()}?{word()}"])

    def ask(count: int) -> None:
        connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
        for place in range(count):
            connection.request(chance.choice(METHODS) if place % 10 == 0 else "GET", target())
            answer = connection.getresponse()
            answer.read()
            assert answer.status in (404, 405)
        connection.close()

    def shout(count: int) -> None:
        for _ in range(count):
            with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
                connection.sendall(f"{word()} {target()} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                assert connection.recv(65536).startswith(b"HTTP/1.1 400 ")

    ask(500)
    known = series(server)
    ask(10_000)
    shout(200)
    assert series(server) == known


def test_every_worker_and_the_build_are_told(server: RunningServer) -> None:
    assert metric(server, "probmap_worker_up", device="cpu") == 1
    assert metric(server, "probmap_ready") == 1
    (sample,) = families(server)["probmap_build_info"].samples
    assert set(sample.labels) == {"version", "torch"}


def test_labels_name_mappings_and_nothing_else(server: RunningServer) -> None:
    for name in ("softmax", "sparsemax"):
        mapped(server, mapping=name)
    samples = families(server)["probmap_compute_duration_seconds"].samples
    assert {sample.labels["mapping"] for sample in samples} <= {*MAPPINGS, "faulty"}


def test_the_memory_of_a_cuda_device_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = Runtime(Settings(device="cpu"))
    runtime.engine.workers[0].device = torch.device("cuda:0")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 10)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 20)
    whole = SimpleNamespace(total_memory=30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: whole)
    for kind, size in (("allocated", 10), ("reserved", 20), ("total", 30)):
        labels = {"device": "cuda:0", "kind": kind}
        told = runtime.metrics.registry.get_sample_value("probmap_device_memory_bytes", labels)
        assert told == size


def test_every_metric_that_the_readme_asks_for_is_there(server: RunningServer) -> None:
    mapped(server)
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Metrics")[2]
    found = families(server)
    names = {*found, *(sample.name for family in found.values() for sample in family.samples)}
    asked = set(re.findall(r"\bprobmap_[a-z_]+", section.partition("\n## ")[0]))
    assert len(asked) >= 20
    assert asked <= names
