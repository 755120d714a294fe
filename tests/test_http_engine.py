"""A running server under callers that hurt it: nobody else notices."""

import asyncio
import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest

from faults import MARK
from load import request_bytes, waiting_callers
from server import RunningServer, faulty_server, metric, running_server
from waiting import until

pytestmark = pytest.mark.alone

NOT_HELD_UP = 2.0
"""What "at once" means where other work shares the machine (seconds)."""

LONG = 10.0
"""How long a computation takes that nobody waits for to its end (seconds)."""


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """A server with the faulty mapping, for tests that leave it well."""
    with faulty_server() as running:
        yield running


def faulty(fault: str, *, marked: bool = False, **fields: Any) -> dict[str, Any]:
    """The body of a request of the faulty mapping."""
    row = [MARK if marked else 0.5, 1.0, 2.0]
    return {"logits": [row], "mapping": {"name": "faulty", "fault": fault, **fields}}


def slow(seconds: float) -> dict[str, Any]:
    """The body of a request that takes so long to compute."""
    return faulty("slow", seconds=seconds)


def post(server: RunningServer, body: dict[str, Any], **headers: str) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/map", json=body, headers=headers, timeout=60)


def raw_request(body: dict[str, Any], *headers: str) -> bytes:
    """A whole request, as it goes over the wire."""
    content = json.dumps(body).encode()
    lines = [
        "POST /v1/map HTTP/1.1",
        "Host: x",
        "Content-Type: application/json",
        f"Content-Length: {len(content)}",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + content


def readiness(server: RunningServer) -> int:
    return httpx.get(f"{server.url}/v2/health/ready").status_code


async def posted_together(
    server: RunningServer, bodies: list[dict[str, Any]]
) -> list[httpx.Response]:
    """The answers to requests that are made at the same time."""
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=server.url, timeout=60, limits=limits) as client:
        return await asyncio.gather(*(client.post("/v1/map", json=body) for body in bodies))


def test_64_callers_with_a_row_each_share_batches(server: RunningServer) -> None:
    row = np.random.default_rng(0).standard_normal(1000).round(3).tolist()
    body = {"logits": [row], "mapping": "entmax", "outputs": ["entropy"]}
    before = {part: metric(server, f"probmap_batch_rows_{part}") for part in ("sum", "count")}
    load = waiting_callers(server.port, request_bytes("/v1/map", body), callers=64, seconds=3)
    answers = asyncio.run(load)
    assert {answer.status for answer in answers} == {200}
    rows = metric(server, "probmap_batch_rows_sum") - before["sum"]
    batches = metric(server, "probmap_batch_rows_count") - before["count"]
    assert rows == len(answers)
    assert rows / batches > 8


def test_every_caller_gets_its_own_rows(server: RunningServer) -> None:
    generator = np.random.default_rng(1)
    values = [generator.standard_normal((generator.integers(1, 5), 7)) for _ in range(150)]
    warm = generator.uniform(0.5, 2, 150)
    bodies: list[dict[str, Any]] = [
        {
            "logits": value.tolist(),
            "mapping": {"name": "softmax", "temperature": temperature},
            "outputs": ["probabilities", "entropy"] if place % 3 else ["probabilities"],
        }
        for place, (value, temperature) in enumerate(zip(values, warm, strict=True))
    ]
    answers = asyncio.run(posted_together(server, bodies))
    for body, value, temperature, answer in zip(bodies, values, warm, answers, strict=True):
        found = answer.json()
        powers = np.exp(value / temperature)
        wanted = powers / powers.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(found["probabilities"], wanted, rtol=1e-12)
        assert {"probabilities", "entropy"} & found.keys() == set(body["outputs"])


@pytest.mark.parametrize("fault", ["error", "exit", "memory"])
def test_a_failure_is_answered_to_the_culprit_alone(server: RunningServer, fault: str) -> None:
    bodies = [faulty(fault, marked=place == 5) for place in range(12)]
    answers = asyncio.run(posted_together(server, [slow(0.2), *bodies]))[1:]
    codes = [answer.status_code for answer in answers]
    assert codes == [(507 if fault == "memory" else 500) if n == 5 else 200 for n in range(12)]
    assert answers[5].headers["content-type"] == "application/problem+json"
    assert answers[5].json()["code"] == ("out_of_memory" if fault == "memory" else "internal_error")
    assert "injected" not in answers[5].text
    assert readiness(server) == 200


def test_callers_that_leave_do_not_touch_the_others(server: RunningServer) -> None:
    blocker = threading.Thread(target=post, args=(server, slow(4.0)))
    blocker.start()
    time.sleep(0.2)
    before = metric(server, "probmap_batch_rows_sum")
    leaving = []
    for _ in range(6):
        connection = socket.create_connection(("127.0.0.1", server.port))
        connection.sendall(raw_request({"logits": [[1, 2]], "mapping": "sparsemax"}))
        leaving.append(connection)
    with ThreadPoolExecutor(6) as callers:
        staying = [
            callers.submit(post, server, {"logits": [[n, 2.0]], "mapping": "sparsemax"})
            for n in range(6)
        ]
        until(lambda: metric(server, "probmap_queue_rows") == 12)
        for connection in leaving:
            connection.close()
        until(lambda: metric(server, "probmap_queue_rows") == 6)
        answers = [future.result() for future in staying]
    blocker.join()
    for n, answer in enumerate(answers):
        wanted = [[0, 1], [0, 1], [0.5, 0.5], [1, 0], [1, 0], [1, 0]][n]
        assert answer.json()["probabilities"] == [wanted]
    # The one that was slow, and the six that stayed.
    assert metric(server, "probmap_batch_rows_sum") - before == 7
    assert post(server, {"logits": [1, 2], "mapping": "softmax"}).status_code == 200


def test_who_leaves_gives_its_place_back(server: RunningServer) -> None:
    connection = socket.create_connection(("127.0.0.1", server.port))
    connection.sendall(raw_request(slow(LONG)))
    until(lambda: metric(server, "probmap_inflight_bytes") > 0)
    connection.close()
    assert until(lambda: metric(server, "probmap_inflight_bytes") == 0) < LONG / 2


def test_an_answer_that_would_be_late_is_refused_in_time(server: RunningServer) -> None:
    started = time.monotonic()
    answer = post(server, slow(LONG), **{"X-Request-Timeout-Ms": "200"})
    assert 0.2 <= time.monotonic() - started < LONG / 2
    assert (answer.status_code, answer.json()["code"]) == (504, "deadline_exceeded")
    in_time = post(server, slow(0), **{"X-Request-Timeout-Ms": "30000"})
    assert in_time.status_code == 200


@pytest.mark.parametrize("given", ["0", "-1", "1.5", "soon", "", "1e3", "99999999999", "²"])
def test_a_time_that_is_none_is_refused(server: RunningServer, given: str) -> None:
    headers = [(b"X-Request-Timeout-Ms", given.encode())]
    answer = httpx.post(f"{server.url}/v1/map", json=slow(0), headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
    assert "X-Request-Timeout-Ms" in answer.json()["detail"]


def test_more_rows_than_the_server_holds_are_refused_at_once() -> None:
    with faulty_server("--max-inflight-rows", "4") as server, httpx.Client() as client:
        blocker = threading.Thread(target=post, args=(server, slow(3.0)))
        blocker.start()
        until(lambda: metric(server, "probmap_inflight_rows") == 1)
        small = {"logits": [[1, 2]] * 3, "mapping": "softmax"}
        large = {"logits": [[1, 2]] * 4, "mapping": "softmax"}
        refused = client.post(f"{server.url}/v1/map", json=large)
        assert blocker.is_alive()
        assert (refused.status_code, refused.json()["code"]) == (429, "overloaded")
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert "--max-inflight-rows" in refused.json()["detail"]
        # What fits is taken, on the same connection.
        assert "connection" not in refused.headers
        assert client.post(f"{server.url}/v1/map", json=small).status_code == 200
        blocker.join()
        # Alone, a request may hold more than all together.
        assert post(server, {**large, "logits": [[1, 2]] * 50}).status_code == 200
        assert metric(server, "probmap_rejected_total", reason="rows") == 1


def test_more_bytes_than_the_server_holds_are_refused_before_they_are_read() -> None:
    with faulty_server("--max-inflight-bytes", "300000") as server:
        blocker = threading.Thread(target=post, args=(server, slow(3.0)))
        blocker.start()
        until(lambda: metric(server, "probmap_inflight_bytes") > 0)
        body = {"logits": [[0.123456789] * 50_000], "mapping": "softmax"}
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
            whole = raw_request(body)
            connection.sendall(whole[:100_000])
            assert connection.recv(65536).startswith(b"HTTP/1.1 429 ")
        assert blocker.is_alive()
        blocker.join()
        assert post(server, body).status_code == 200
        assert metric(server, "probmap_inflight_bytes") == 0


def test_who_announces_much_and_sends_little_takes_no_room() -> None:
    with faulty_server("--max-inflight-bytes", "1000000") as server:
        held = []
        for _ in range(10):
            connection = socket.create_connection(("127.0.0.1", server.port))
            connection.sendall(raw_request(slow(0), "X-Padding: 1").split(b"\r\n\r\n")[0])
            connection.sendall(b"\r\n\r\n{")
            held.append(connection)
        announced = b"POST /v1/map HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\n{"
        for _ in range(10):
            connection = socket.create_connection(("127.0.0.1", server.port))
            connection.sendall(announced)
            held.append(connection)
        until(lambda: metric(server, "probmap_inflight_bytes") >= 10)
        answer = post(server, {"logits": [[0.5] * 10_000], "mapping": "softmax"})
        assert answer.status_code == 200
        for connection in held:
            connection.close()


def test_a_dead_worker_turns_readiness_red_and_is_replaced_once() -> None:
    with faulty_server() as server:
        assert post(server, faulty("death", marked=True)).status_code == 200
        assert until(lambda: readiness(server) == 503) < 2
        until(lambda: readiness(server) == 200)
        assert metric(server, "probmap_worker_restarts_total") == 1
        assert post(server, slow(0)).status_code == 200
        assert post(server, faulty("death", marked=True)).status_code == 200
        assert until(lambda: readiness(server) == 503) < 2
        # Nothing is left to compute with: callers are told, and so is who watches the process.
        until(lambda: httpx.get(f"{server.url}/health").status_code == 503)
        refused = post(server, slow(0))
        assert (refused.status_code, refused.json()["code"]) == (503, "not_ready")
        assert "an injected death" in server.output


def test_a_worker_that_stands_still_turns_readiness_red_and_is_replaced() -> None:
    with faulty_server("--stall-seconds", "3") as server, ThreadPoolExecutor(1) as caller:
        stuck = caller.submit(post, server, faulty("sleep", marked=True, seconds=8.0))
        until(lambda: metric(server, "probmap_inflight_rows") == 1)
        assert until(lambda: readiness(server) == 503) < 2
        assert httpx.get(f"{server.url}/health").status_code == 200
        until(lambda: readiness(server) == 200)
        assert stuck.result().status_code == 500
        assert post(server, slow(0)).status_code == 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_the_server_finishes_what_it_took(number: signal.Signals) -> None:
    with faulty_server() as server, ThreadPoolExecutor(9) as callers:
        running = [callers.submit(post, server, slow(4.0))]
        until(lambda: metric(server, "probmap_inflight_rows") == 1)
        running += [
            callers.submit(post, server, {"logits": [n, 2], "mapping": "softmax"}) for n in range(8)
        ]
        until(lambda: metric(server, "probmap_inflight_rows") == 9)
        server.process.send_signal(number)
        until(lambda: readiness(server) == 503)
        assert not any(future.done() for future in running)
        refused = post(server, {"logits": [1, 2], "mapping": "softmax"})
        assert (refused.status_code, refused.json()["code"]) == (503, "not_ready")
        assert refused.headers["retry-after"] == "1"
        assert [future.result().status_code for future in running] == [200] * 9
        assert server.process.wait(15) == 0
        assert "Traceback" not in server.output


def test_what_is_not_done_within_the_grace_is_told_so() -> None:
    with faulty_server("--grace-seconds", "1") as server, ThreadPoolExecutor(1) as caller:
        running = caller.submit(post, server, slow(30))
        until(lambda: metric(server, "probmap_inflight_rows") == 1)
        started = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        answer = running.result()
        assert (answer.status_code, answer.json()["code"]) == (503, "not_ready")
        assert server.process.wait(10) == 0
        assert time.monotonic() - started < 8
        assert "Traceback" not in server.output


def test_an_idle_server_stops_at_once() -> None:
    with running_server() as server:
        started = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(10) == 0
        assert time.monotonic() - started < NOT_HELD_UP
