"""Large binary bodies, which go past the parser: in pieces, cut off, too slow, too much."""

import socket
import time
from collections.abc import Iterator

import httpx
import numpy as np
import pytest
import torch

from cases import built
from mappings.evaluate import evaluate
from oip_bodies import HEADER, Array, binary, body, logits, rows
from server import RunningServer, metric, running_server
from test_http_connections import one_answer, rest_of
from waiting import until

ROWS, CLASSES = 16, 40_000
PATH = "/v2/models/softmax/infer"
PARSERS = ["httptools", "h11"]


@pytest.fixture(scope="module", params=PARSERS)
def server(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    flags = ("--http-parser", request.param, "--body-timeout-seconds", "2")
    with running_server(*flags) as running:
        yield running


def request_of(array: Array) -> tuple[bytes, bytes]:
    """The header and the body of a request over the Open Inference Protocol."""
    content, headers = body(logits(array), **binary("probabilities"))
    lines = [f"POST {PATH} HTTP/1.1", "Host: x", f"Content-Length: {len(content)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode(), content


def open_to(server: RunningServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=60)


def probabilities(answer: bytes, shape: tuple[int, ...]) -> Array:
    """The tensor behind an answer's header and its JSON."""
    head, _, content = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), answer[:500]
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    start = int(fields[HEADER.lower().encode()])
    return np.frombuffer(content[start:], np.float32).reshape(shape)


def wanted(array: Array) -> Array:
    found = evaluate(torch.from_numpy(array), built("softmax")).probabilities
    assert found is not None
    answer: Array = found.numpy()
    return answer


@pytest.mark.parametrize("cuts", [[], [0], [1], [70_000], [300_000, 1_000_000], [-1], [-300_000]])
def test_a_body_may_come_in_any_pieces(server: RunningServer, cuts: list[int]) -> None:
    array = rows(ROWS, CLASSES, seed=len(cuts))
    head, content = request_of(array)
    with open_to(server) as connection:
        pieces = np.split(np.frombuffer(content, np.uint8), [cut % len(content) for cut in cuts])
        connection.sendall(head + pieces[0].tobytes())
        for piece in pieces[1:]:
            time.sleep(0.05)
            connection.sendall(piece.tobytes())
        np.testing.assert_array_equal(
            probabilities(one_answer(connection), array.shape), wanted(array)
        )


def test_requests_behind_a_large_body_are_answered_in_order(server: RunningServer) -> None:
    arrays = [rows(ROWS, CLASSES, seed=seed) for seed in range(3)]
    parts = [part for array in arrays for part in request_of(array)]
    with open_to(server) as connection:
        connection.sendall(b"".join([*parts, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"]))
        answers = b""
        for array in arrays:
            answers += one_answer(connection) if not answers else b""
            head, _, rest = answers.partition(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            while len(rest) < length:
                part = connection.recv(1 << 20)
                rest, answers = rest + part, answers + part
            whole = len(head) + 4 + length
            found = probabilities(answers[:whole], array.shape)
            np.testing.assert_array_equal(found, wanted(array))
            answers = answers[whole:]


def test_a_client_that_leaves_in_the_middle_takes_nothing_with_it(server: RunningServer) -> None:
    array = rows(ROWS, CLASSES)
    head, content = request_of(array)
    for sent in (0, 1, 100_000, 1_000_000, len(content) - 1):
        with open_to(server) as connection:
            connection.sendall(head + content[:sent])
            time.sleep(0.1)
    until(lambda: metric(server, "probmap_inflight_bytes") == 0)
    with open_to(server) as connection:
        connection.sendall(head + content)
        np.testing.assert_array_equal(
            probabilities(one_answer(connection), array.shape), wanted(array)
        )


def test_a_body_that_stops_is_refused_in_time(server: RunningServer) -> None:
    head, content = request_of(rows(ROWS, CLASSES))
    with open_to(server) as connection:
        connection.sendall(head + content[:1_000_000])
        answer = rest_of(connection)
    assert answer.startswith(b"HTTP/1.1 408"), answer[:300]
    assert b"body_timeout" in answer
    until(lambda: metric(server, "probmap_inflight_bytes") == 0)


def test_a_body_that_others_leave_no_room_for_is_refused() -> None:
    array = rows(ROWS, CLASSES)
    head, content = request_of(array)
    budget = 3 * len(content)
    with running_server("--max-inflight-bytes", str(budget)) as server, open_to(server) as slow:
        slow.sendall(head + content[:2_000_000])
        until(lambda: metric(server, "probmap_inflight_bytes") >= 2_000_000)
        others = [open_to(server) for _ in range(3)]
        for other in others:
            other.sendall(head + content[:-1])
        answers = []
        for other in others:
            other.sendall(content[-1:])
            with other:
                answers.append(one_answer(other)[:12])
        slow.sendall(content[2_000_000:])
        answers.append(one_answer(slow)[:12])
        assert set(answers) <= {b"HTTP/1.1 200", b"HTTP/1.1 429"}
        assert b"HTTP/1.1 429" in answers
        assert b"HTTP/1.1 200" in answers
        until(lambda: metric(server, "probmap_inflight_bytes") == 0)


def test_an_idle_connection_keeps_nothing_of_its_last_request() -> None:
    array = rows(32, 100_000)
    content, headers = body(logits(array), outputs=[{"name": "entropy"}])
    with running_server() as server:
        with httpx.Client(base_url=server.url, timeout=60) as warm:
            assert warm.post(PATH, content=content, headers=headers).status_code == 200
        time.sleep(2)
        before = server.resident_bytes()
        clients = [httpx.Client(base_url=server.url, timeout=60) for _ in range(24)]
        for client in clients:
            assert client.post(PATH, content=content, headers=headers).status_code == 200
        time.sleep(2)
        kept = server.resident_bytes() - before
        for client in clients:
            client.close()
    assert kept < 2 * len(content), f"{kept:,} bytes kept of {24 * len(content):,}"
