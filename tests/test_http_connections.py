"""Connections that are many, slow, silent or endless, over real sockets and with both parsers."""

import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from server import RunningServer, running_server

HEADER_BYTES = 4096
LIMITS = {
    "--header-timeout-seconds": "1",
    "--body-timeout-seconds": "1.5",
    "--keep-alive-seconds": "2",
    "--stream-idle-seconds": "1",
    "--max-header-bytes": str(HEADER_BYTES),
}
FLAGS = [part for pair in LIMITS.items() for part in pair]

LATEST = 20.0
"""When everything that a second should end must have ended, however busy the machine (seconds)."""

GET = b"GET /health HTTP/1.1\r\nHost: x\r\n"
POST = b"POST /v1/map HTTP/1.1\r\nHost: x\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"


@pytest.fixture(scope="module", params=["httptools", "h11"])
def hasty(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    """A server that gives little time."""
    with running_server("--http-parser", request.param, *FLAGS) as server:
        yield server


def open_to(server: RunningServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=LATEST)


def rest_of(connection: socket.socket) -> bytes:
    """What comes until the server closes the connection."""
    answer = b""
    try:
        while part := connection.recv(65536):
            answer += part
    except ConnectionResetError:
        # There was more of ours on the way when it closed.
        pass
    return answer


def one_answer(connection: socket.socket) -> bytes:
    """One answer, whole, of a connection that stays open."""
    answer = b""
    while (found := re.search(rb"content-length: (\d+)\r\n(?s:.*)\r\n\r\n", answer)) is None:
        answer += connection.recv(65536)
    while len(answer) < found.end() + int(found[1]):
        answer += connection.recv(65536)
    return answer


def talk(server: RunningServer, *pieces: bytes, pause: float = 0.0) -> tuple[bytes, float]:
    """Sends pieces; what comes until the connection ends, and how long that took."""
    started = time.monotonic()
    with open_to(server) as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
                time.sleep(pause)
        except (BrokenPipeError, ConnectionResetError):
            # It has closed already.
            pass
        return rest_of(connection), time.monotonic() - started


def assert_problem(answer: bytes, status: int, code: str, *words: str) -> None:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), answer
    assert b"content-type: application/problem+json" in head
    assert b"connection: close" in head
    assert b"x-content-type-options: nosniff" in head
    problem = json.loads(body)
    assert (problem["status"], problem["code"]) == (status, code)
    for word in words:
        assert word in problem["detail"]


@pytest.mark.parametrize("begun", [b"GET /hea", GET, b"G"], ids=["path", "host", "g"])
def test_half_a_header_then_silence_is_a_timeout(hasty: RunningServer, begun: bytes) -> None:
    answer, seconds = talk(hasty, begun)
    assert_problem(answer, 408, "header_timeout", "1 seconds", "--header-timeout-seconds")
    assert 0.9 < seconds < LATEST


def test_a_header_that_trickles_is_a_timeout(hasty: RunningServer) -> None:
    with open_to(hasty) as connection:
        connection.sendall(GET + b"X: ")
        started, answer = time.monotonic(), b""
        connection.settimeout(0.1)
        while not answer:
            assert time.monotonic() < started + LATEST
            try:
                connection.sendall(b"x")
                answer = connection.recv(65536)
            except TimeoutError:
                continue
    assert_problem(answer, 408, "header_timeout")


def test_a_second_header_has_no_more_time_than_the_first(hasty: RunningServer) -> None:
    with open_to(hasty) as connection:
        connection.sendall(GET + b"\r\n")
        assert one_answer(connection).startswith(b"HTTP/1.1 200 ")
        connection.sendall(GET)
        assert_problem(rest_of(connection), 408, "header_timeout")


def test_a_header_in_pieces_that_is_in_time_is_read(hasty: RunningServer) -> None:
    with open_to(hasty) as connection:
        for _ in range(3):
            for piece in (b"GET /hea", b"lth HTTP/1.1\r\nHo", b"st: x\r\n", b"\r\n"):
                connection.sendall(piece)
                time.sleep(0.02)
            assert one_answer(connection).startswith(b"HTTP/1.1 200 ")


def test_a_connection_that_says_nothing_is_closed(hasty: RunningServer) -> None:
    answer, seconds = talk(hasty)
    assert answer == b""
    assert 1.9 < seconds < LATEST


def test_a_connection_that_says_nothing_more_is_closed(hasty: RunningServer) -> None:
    answer, seconds = talk(hasty, GET + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert 1.9 < seconds < LATEST


@pytest.mark.parametrize(
    "pieces",
    [
        [GET + b"X: " + b"x" * 2 * HEADER_BYTES],
        [b"GET /" + b"x" * 2 * HEADER_BYTES],
        [GET + b"X: y\r\n" * HEADER_BYTES],
        [GET, *[b"X: " + b"y" * 100 + b"\r\n"] * 100],
        [GET + b"X: ", *[b"y" * 100] * 100],
        [CHUNKED + b"0\r\n", *[b"X: " + b"y" * 100 + b"\r\n"] * 100],
        [CHUNKED + b"0\r\nX: ", *[b"y" * 100] * 100],
        [CHUNKED + b"2;", *[b"y" * 100] * 100],
    ],
    ids=["value", "path", "lines", "in time", "long line", "trailers", "trailer", "extension"],
)
def test_what_has_no_end_is_too_large(hasty: RunningServer, pieces: list[bytes]) -> None:
    with open_to(hasty) as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
                # So that the answer is read before the rest of ours makes it disappear.
                time.sleep(0.001)
        except (BrokenPipeError, ConnectionResetError):
            pass
        answer = rest_of(connection)
    assert_problem(answer, 431, "header_too_large", f"{HEADER_BYTES:,}", "PROBMAP_MAX_HEADER_BYTES")


def test_a_header_of_nearly_the_limit_is_read(hasty: RunningServer) -> None:
    value = b"x" * (HEADER_BYTES - 200)
    answer, _ = talk(hasty, GET + b"X: " + value + b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("sent", [b"\x16\x03\x01\x02\x00\x01\r\n\r\n", b"hello\r\n\r\n"])
def test_what_is_not_http_is_a_problem_too(hasty: RunningServer, sent: bytes) -> None:
    answer, _ = talk(hasty, sent)
    assert_problem(answer, 400, "malformed_request")


def test_the_rest_of_a_body_that_nobody_reads_is_awaited_for_a_while(hasty: RunningServer) -> None:
    unread = b"POST /nope HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\n"
    with open_to(hasty) as connection:
        connection.sendall(unread)
        assert one_answer(connection).startswith(b"HTTP/1.1 404 ")
        connection.sendall(b"x" * 300_000)
        for piece in (GET, b"\r\n"):
            connection.sendall(piece)
            time.sleep(0.02)
        assert one_answer(connection).startswith(b"HTTP/1.1 200 ")
        # Now no rest comes, or too little.
        connection.sendall(unread)
        assert one_answer(connection).startswith(b"HTTP/1.1 404 ")
        started = time.monotonic()
        connection.sendall(b"x")
        assert rest_of(connection) == b""
        assert 1 < time.monotonic() - started < LATEST


def test_an_answer_that_nobody_reads_is_given_up(hasty: RunningServer) -> None:
    body = json.dumps({"logits": [[0] * 1000] * 2000, "mapping": "softmax"}).encode()
    with open_to(hasty) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert connection.recv(100).startswith(b"HTTP/1.1 200 ")
        until = time.monotonic() + LATEST
        while held_bytes(hasty):
            assert time.monotonic() < until
            time.sleep(0.2)
    assert "Traceback" not in hasty.output


def held_bytes(server: RunningServer) -> float:
    text = httpx.get(f"{server.url}/metrics").text
    line = next(line for line in text.splitlines() if line.startswith("probmap_inflight_bytes "))
    return float(line.split()[1])


def test_an_answer_that_is_read_slowly_is_read_to_its_end(hasty: RunningServer) -> None:
    body = json.dumps({"logits": [[0] * 1000] * 1000, "mapping": "softmax"}).encode()
    with open_to(hasty) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        head = b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body)
        connection.sendall(POST + head + body)
        answer = connection.recv(65536)
        # Three times the time in which something has to be read.
        started = time.monotonic()
        while time.monotonic() < started + 3:
            answer += connection.recv(100_000)
            time.sleep(0.05)
        answer += rest_of(connection)
    head, _, text = answer.partition(b"\r\n\r\n")
    assert f"content-length: {len(text)}".encode() in head
    assert len(json.loads(text)["probabilities"]) == 1000


def test_more_connections_than_the_limit_are_refused_until_there_is_room() -> None:
    with running_server("--max-connections", "20") as server, ExitStack() as held:
        # The server may not have seen yet that the one that asked for its health has gone.
        time.sleep(0.2)
        connections = [held.enter_context(open_to(server)) for _ in range(20)]
        with open_to(server) as another:
            assert_problem(rest_of(another), 429, "overloaded", "PROBMAP_MAX_CONNECTIONS")
        for connection in connections:
            connection.sendall(GET + b"\r\n")
            assert one_answer(connection).startswith(b"HTTP/1.1 200 ")
        connections[0].close()
        until = time.monotonic() + LATEST
        while not talk(server, GET + b"Connection: close\r\n\r\n")[0].startswith(b"HTTP/1.1 200"):
            assert time.monotonic() < until


MANY = 10_000
IDLE_BYTES = 32 << 10
"""The most that an idle connection may take (bytes)."""


def test_ten_thousand_idle_connections_are_held_in_bounded_memory() -> None:
    with running_server("--max-connections", str(MANY - 100)) as server, ExitStack() as held:
        before = server.resident_bytes()
        asking = httpx.Client(base_url=server.url, timeout=LATEST)
        held.enter_context(asking)
        assert asking.get("/health").status_code == 200
        connections = [held.enter_context(open_to(server)) for _ in range(MANY)]
        # Half of them have asked once, as those of clients that may come back.
        for connection in connections[: MANY // 2]:
            connection.sendall(GET + b"\r\n")
        for connection in connections[: MANY // 2]:
            assert one_answer(connection).startswith(b"HTTP/1.1 200 ")
        refused = 0
        for connection in connections[-200:]:
            connection.settimeout(0.01)
            try:
                refused += connection.recv(65536).startswith(b"HTTP/1.1 429 ")
            except TimeoutError:
                continue
        assert 90 <= refused <= 110
        grown = server.resident_bytes() - before
        assert grown < MANY * IDLE_BYTES, f"{grown / MANY / 1024:.1f} KiB a connection"
        started = time.monotonic()
        body = {"logits": [0, 0.5, 1], "mapping": "sparsemax"}
        assert asking.post("/v1/map", json=body).json()["probabilities"] == [[0.0, 0.25, 0.75]]
        assert time.monotonic() - started < LATEST
