"""GET /v1/ws with a real WebSocket client: a decoder's step loop, and what ends it."""

import asyncio
import json
import signal
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from websockets.asyncio.client import connect as connect_async
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from server import RunningServer, faulty_server, metric, running_server
from waiting import until


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """A server with the faulty mapping."""
    with faulty_server() as running:
        yield running


def connected(server: RunningServer, query: str = "", **options: Any) -> ClientConnection:
    """A connection to the server's WebSocket."""
    address = f"ws://127.0.0.1:{server.port}/v1/ws{query}"
    connection: ClientConnection = connect(address, max_size=None, **options)
    return connection


def asked(connection: ClientConnection, request: Any) -> dict[str, Any]:
    """The answer to one request."""
    connection.send(json.dumps(request))
    answer: dict[str, Any] = json.loads(connection.recv(timeout=30))
    return answer


def oip_message(header: dict[str, Any], tensors: bytes = b"") -> bytes:
    """An Open Inference Protocol body with the length of its JSON in front."""
    text = json.dumps(header).encode()
    return struct.pack("<I", len(text)) + text + tensors


def oip_parts(message: Any) -> tuple[dict[str, Any], bytes]:
    """The JSON and the tensors of a binary message."""
    (length,) = struct.unpack("<I", message[:4])
    return json.loads(message[4 : 4 + length]), message[4 + length :]


def test_a_step_loop_is_answered_step_by_step(server: RunningServer) -> None:
    row = np.zeros(5)
    with connected(server) as connection:
        for step in range(20):
            request = {
                "op": "sample",
                "id": step,
                "logits": row.tolist(),
                "mapping": {"name": "softmax", "temperature": 0.5},
                "seed": step,
            }
            answer = asked(connection, request)
            alone = {name: value for name, value in request.items() if name not in ("op", "id")}
            wanted = httpx.post(f"{server.url}/v1/sample", json=alone).json()
            assert answer == {"index": step, "id": step, **wanted}
            row[answer["tokens"][0][0]] += 1


def test_a_ping_is_answered_while_requests_are_computed(server: RunningServer) -> None:
    slow = {"logits": [1, 2], "mapping": {"name": "faulty", "fault": "slow", "seconds": 1.0}}
    with connected(server) as connection:
        connection.send(json.dumps(slow))
        assert connection.ping(b"there?").wait(10)
        assert json.loads(connection.recv(timeout=30))["rows"] == 1


def test_a_bad_message_is_answered_and_the_next_is_read(server: RunningServer) -> None:
    with connected(server) as connection:
        connection.send("{")
        assert json.loads(connection.recv())["error"]["code"] == "malformed_body"
        bad = asked(connection, {"logits": [1], "mapping": "nope"})
        assert (bad["index"], bad["error"]["status"]) == (1, 404)
        assert asked(connection, {"logits": [1], "mapping": "softmax"})["probabilities"] == [[1]]


def test_open_inference_bodies_are_answered_as_binary_messages(server: RunningServer) -> None:
    logits = np.array([[0, 0.25, 0.5], [5, 0, 0]], dtype=np.float32)
    header = {
        "model_name": "sparsemax",
        "id": "step 1",
        "inputs": [
            {
                "name": "logits",
                "datatype": "FP32",
                "shape": [2, 3],
                "parameters": {"binary_data_size": logits.nbytes},
            }
        ],
        "outputs": [{"name": "probabilities", "parameters": {"binary_data": True}}],
    }
    with connected(server) as connection:
        connection.send(oip_message(header, logits.tobytes()))
        told, tensors = oip_parts(connection.recv(timeout=30))
        assert (told["model_name"], told["id"]) == ("sparsemax", "step 1")
        found = np.frombuffer(tensors, dtype=np.float32).reshape(2, 3)
        wanted = np.array([[1 / 12, 1 / 3, 7 / 12], [1, 0, 0]])
        np.testing.assert_allclose(found.astype(float), wanted, rtol=1e-6)
        # The same without binary outputs is all JSON.
        plain = {**header, "outputs": [{"name": "probabilities"}]}
        connection.send(oip_message(plain, logits.tobytes()))
        told, tensors = oip_parts(connection.recv(timeout=30))
        assert tensors == b""
        np.testing.assert_allclose(told["outputs"][0]["data"][3:], [1, 0, 0])


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b"", "malformed_body"),
        (b"\x01", "malformed_body"),
        (b"\xff\xff\xff\xff{}", "malformed_body"),
        (struct.pack("<I", 3) + b"{[}", "malformed_body"),
        (struct.pack("<I", 2) + b"[]", "malformed_body"),
        (oip_message({}), "unknown_name"),
        (oip_message({"model_name": "nope"}), "unknown_name"),
    ],
)
def test_a_bad_binary_message_is_answered_in_its_kind(
    server: RunningServer, message: bytes, code: str
) -> None:
    with connected(server) as connection:
        connection.send(message)
        told, _ = oip_parts(connection.recv(timeout=30))
        assert told["code"] == code
        assert told["error"] == told["detail"]
        assert asked(connection, {"logits": [1], "mapping": "softmax"})["rows"] == 1


def test_answers_may_come_as_they_are_ready(server: RunningServer) -> None:
    slow = {"logits": [1, 2], "mapping": {"name": "faulty", "fault": "slow", "seconds": 0.5}}
    for query, first in (("", "slow"), ("?order=completion", "quick")):
        with connected(server, query) as connection:
            connection.send(json.dumps({**slow, "id": "slow"}))
            connection.send(json.dumps({"logits": [1], "mapping": "softmax", "id": "quick"}))
            assert json.loads(connection.recv(timeout=30))["id"] == first


@pytest.mark.parametrize("query", ["?order=random", "?order=", "?mapping=softmax"])
def test_a_query_that_says_no_order_closes_the_connection(
    server: RunningServer, query: str
) -> None:
    with connected(server, query) as connection:
        with pytest.raises(ConnectionClosed) as closed:
            connection.recv(timeout=30)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008
        assert "order" in closed.value.rcvd.reason


def test_a_connection_is_counted_and_logged_under_the_clients_id() -> None:
    with running_server("--log-format", "json") as server:
        named = {"X-Request-Id": "mine"}
        for query, asks in (("", 3), ("?order=none", 0)):
            with connected(server, query, additional_headers=named) as connection:
                assert connection.response is not None
                assert connection.response.headers["x-request-id"] == "mine"
                for _ in range(asks):
                    connection.send("{}")
                    connection.recv(timeout=30)
        labels = {"route": "/v1/ws", "method": "GET", "code": "101"}
        ended = "probmap_request_duration_seconds_count"
        until(lambda: '"/v1/ws"' in server.output and metric(server, ended, **labels) == 2)
        lines = [json.loads(line) for line in server.output.splitlines() if '"/v1/ws"' in line]
    assert [(line["request_id"], line["requests"], line["failed"]) for line in lines] == [
        ("mine", 3, 3),
        ("mine", 0, 0),
    ]
    assert [line.get("error") for line in lines] == [None, "invalid_request"]


def test_a_message_above_the_limit_closes_the_connection() -> None:
    with running_server("--max-body-bytes", "1000") as server, connected(server) as connection:
        connection.send(json.dumps({"logits": [0.5] * 1000, "mapping": "softmax"}))
        with pytest.raises(ConnectionClosed) as closed:
            connection.recv(timeout=30)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009


def test_told_to_stop_the_server_answers_what_it_took_and_closes() -> None:
    slow = {"logits": [1, 2], "mapping": {"name": "faulty", "fault": "slow", "seconds": 1.0}}
    with faulty_server() as server, connected(server) as connection:
        connection.send(json.dumps(slow))
        until(lambda: metric(server, "probmap_inflight_rows") == 1)
        server.process.send_signal(signal.SIGTERM)
        assert json.loads(connection.recv(timeout=30))["rows"] == 1
        last = json.loads(connection.recv(timeout=30))
        assert (last["done"], last["lines"], last["error"]["code"]) == (False, 1, "not_ready")
        with pytest.raises(ConnectionClosed) as closed:
            connection.recv(timeout=30)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1001
        assert server.process.wait(10) == 0
        assert "Traceback" not in server.output


def test_who_leaves_gives_its_places_back(server: RunningServer) -> None:
    slow = {"logits": [1, 2], "mapping": {"name": "faulty", "fault": "slow", "seconds": 3.0}}
    with connected(server) as connection:
        for _ in range(10):
            connection.send(json.dumps(slow))
        time.sleep(0.3)
        # Without a word, as a machine that dies.
        connection.socket.shutdown(socket.SHUT_RDWR)
    until(lambda: metric(server, "probmap_inflight_bytes") == 0, seconds=5)


def test_many_connections_share_batches(server: RunningServer) -> None:
    async def loop(number: int) -> None:
        async with connect_async(f"ws://127.0.0.1:{server.port}/v1/ws") as connection:
            for step in range(10):
                request = {"id": step, "logits": [number, 1.0], "mapping": "sparsemax"}
                await connection.send(json.dumps(request))
                assert json.loads(await connection.recv())["id"] == step

    async def all_loops() -> None:
        await asyncio.gather(*map(loop, range(32)))

    asyncio.run(all_loops())
