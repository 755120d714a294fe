"""Bodies that are too large or too slow, and connections that go quiet, over real sockets."""

import json
import socket
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import httpx
import pytest

from server import RunningServer, running_server
from service.settings import Settings

LIMITS = {
    "max_body_bytes": 200_000,
    "max_rows": 4,
    "max_classes": 50,
    "max_elements": 100,
    "max_output_elements": 120,
}


@pytest.fixture(scope="module")
def limited() -> Iterator[RunningServer]:
    """A server with small limits, one of them from the environment."""
    flags = [
        part
        for name, value in LIMITS.items()
        if name != "max_classes"
        for part in (f"--{name.replace('_', '-')}", str(value))
    ]
    with running_server(
        *flags, "--body-timeout-seconds", "0.5", PROBMAP_MAX_CLASSES="50"
    ) as server:
        yield server


def post(server: RunningServer, **fields: Any) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/map", json={"mapping": "softmax", **fields}, timeout=30)


def raw(server: RunningServer, *pieces: bytes, pause: float = 0) -> tuple[bytes, float]:
    """Sends pieces over a socket; the answer up to the connection's end, and how long it took."""
    started = time.monotonic()
    answer = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(pause)
        while part := connection.recv(65536):
            answer += part
    return answer, time.monotonic() - started


def head(*headers: str) -> bytes:
    return "\r\n".join(["POST /v1/map HTTP/1.1", "Host: x", *headers, "", ""]).encode()


@pytest.mark.parametrize(
    ("fields", "setting"),
    [
        ({"logits": [[1]] * 5}, "max_rows"),
        ({"logits": [0] * 51}, "max_classes"),
        ({"logits": [[0] * 40] * 3}, "max_elements"),
        ({"logits": [[0] * 40, [0], [0]]}, "max_elements"),
        (
            {"logits": [[0] * 40] * 2, "outputs": ["probabilities", "log_probabilities"]},
            "max_output_elements",
        ),
        ({"logits": [[0] * 25] * 2, "outputs": ["support"]}, "max_output_elements"),
    ],
    ids=["rows", "classes", "elements", "padding", "outputs", "support"],
)
def test_more_than_a_limit_is_refused_with_its_setting(
    limited: RunningServer, fields: dict[str, Any], setting: str
) -> None:
    response = post(limited, **fields)
    assert response.status_code == 413
    detail = response.json()["detail"]
    assert f"the limit is {LIMITS[setting]}" in detail
    assert f"--{setting.replace('_', '-')}" in detail
    assert f"PROBMAP_{setting.upper()}" in detail


@pytest.mark.parametrize(
    "fields",
    [
        {"logits": [[1]] * 4},
        {"logits": [0] * 50},
        {"logits": [[0] * 25] * 4},
        {"logits": [[0] * 40] * 2, "outputs": ["support"], "support_limit": 20},
    ],
    ids=str,
)
def test_as_much_as_a_limit_is_answered(limited: RunningServer, fields: dict[str, Any]) -> None:
    assert post(limited, **fields).status_code == 200


def test_a_body_that_says_it_is_too_large_is_refused_before_it_is_read(
    limited: RunningServer,
) -> None:
    for length in (200_001, 10**18):
        answer, seconds = raw(limited, head(f"Content-Length: {length}"))
        assert answer.startswith(b"HTTP/1.1 413 "), answer
        assert b"PROBMAP_MAX_BODY_BYTES" in answer
        # The rest is awaited for a moment only.
        assert seconds < 10


def test_the_sender_of_a_body_that_is_too_large_reads_the_answer(limited: RunningServer) -> None:
    for _ in range(3):
        response = httpx.post(f"{limited.url}/v1/map", content=b" " * 5_000_000, timeout=30)
        assert response.status_code == 413
        assert response.headers["connection"] == "close"
        assert response.json()["code"] == "too_large"


def test_a_body_of_unknown_length_is_bounded_too(limited: RunningServer) -> None:
    response = httpx.post(
        f"{limited.url}/v1/map", content=(b" " * 10_000 for _ in range(100)), timeout=30
    )
    assert response.status_code == 413
    assert "PROBMAP_MAX_BODY_BYTES" in response.json()["detail"]


def test_half_a_body_then_silence_is_a_timeout(limited: RunningServer) -> None:
    answer, seconds = raw(limited, head("Content-Length: 100"), b'{"logits": [1, 2')
    assert answer.startswith(b"HTTP/1.1 408 "), answer
    problem = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert problem["code"] == "body_timeout"
    assert "0.5 seconds" in problem["detail"]
    assert 0.4 < seconds < 10


def test_a_body_that_trickles_is_a_timeout(limited: RunningServer) -> None:
    trickle = [b" "] * 8
    answer, _ = raw(limited, head("Content-Length: 100"), *trickle, pause=0.1)
    assert answer.startswith(b"HTTP/1.1 408 "), answer


def test_a_sender_that_leaves_hurts_nobody(limited: RunningServer) -> None:
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", limited.port)) as connection:
            connection.sendall(head("Content-Length: 100") + b'{"logits": [')
    assert post(limited, logits=[1]).status_code == 200
    assert "Traceback" not in limited.output


def test_a_connection_idle_for_6_seconds_still_works(limited: RunningServer) -> None:
    connection = HTTPConnection("127.0.0.1", limited.port, timeout=20)
    ports = set()
    for pause in (6, 0):
        connection.request("POST", "/v1/map", b'{"logits": [0, 0], "mapping": "softmax"}')
        response = connection.getresponse()
        assert response.status == 200
        assert response.read().endswith(b'"probabilities":[[0.5,0.5]]}')
        assert connection.sock is not None
        ports.add(connection.sock.getsockname()[1])
        time.sleep(pause)
    connection.close()
    # Python's client would have connected anew, had the server closed the connection.
    assert len(ports) == 1


def test_idle_connections_outlive_those_of_proxies() -> None:
    assert Settings().keep_alive_seconds >= 75


def test_a_client_may_ask_before_it_sends(limited: RunningServer) -> None:
    body = b'{"logits": [0, 0], "mapping": "softmax"}'
    asking = head(f"Content-Length: {len(body)}", "Expect: 100-continue")
    with socket.create_connection(("127.0.0.1", limited.port), timeout=20) as connection:
        connection.sendall(asking)
        assert connection.recv(65536).startswith(b"HTTP/1.1 100 ")
        connection.sendall(body)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_a_server_told_to_stop_exits_with_0_after_its_work() -> None:
    with running_server("--log-format", "json") as server:
        assert post(server, logits=[1, 2]).status_code == 200
        assert server.stop() == 0
        lines = [line for line in server.output.splitlines() if line.startswith("{")]
        logged = [json.loads(line) for line in lines]
        assert [line["code"] for line in logged if line.get("route") == "/v1/map"] == [200]
