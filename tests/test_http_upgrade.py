"""Offers of another protocol, which clients of HTTP/2 make by themselves: they are not taken up."""

import json
import shutil
import socket
import subprocess
from collections.abc import Iterator

import pytest

from server import RunningServer, running_server

SPARSEMAX = [[0.25, 0.75]]
"""Of (0, 0.5): z − τ with τ = −1/4."""

BODY = b'{"logits": [0, 0.5], "mapping": "sparsemax"}'
LENGTH = b"Content-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n5\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (
    BODY[:5],
    len(BODY) - 5,
    BODY[5:],
)
H2C = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
OFFERS = {
    "h2c": H2C,
    "other": b"Connection: keep-alive, Upgrade\r\nUpgrade: smoke-signals\r\n",
    "socket": b"Connection: Upgrade\r\nUpgrade: websockets\r\n",
}


@pytest.fixture(scope="module", params=["httptools", "h11"])
def server(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    with running_server("--http-parser", request.param) as running:
        yield running


def posted(offer: bytes, body: bytes) -> bytes:
    return b"POST /v1/map HTTP/1.1\r\nHost: x\r\n%bX-Empty:\r\n%b" % (offer, body)


def answers(server: RunningServer, *pieces: bytes) -> list[list[list[float]]]:
    """The probabilities of every answer until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        for piece in pieces:
            connection.sendall(piece)
        text = b""
        while part := connection.recv(65536):
            text += part
    heads = text.split(b"HTTP/1.1 ")[1:]
    assert all(head.startswith(b"200 ") for head in heads), text
    return [json.loads(head.partition(b"\r\n\r\n")[2])["probabilities"] for head in heads]


LAST = posted(b"Connection: close\r\n", LENGTH)


@pytest.mark.parametrize("offer", OFFERS.values(), ids=OFFERS)
@pytest.mark.parametrize("body", [LENGTH, CHUNKED], ids=["length", "chunked"])
def test_the_body_behind_an_offer_is_read(server: RunningServer, offer: bytes, body: bytes) -> None:
    assert answers(server, posted(offer, body) + LAST) == [SPARSEMAX] * 2


def test_an_offer_may_be_cut_anywhere(server: RunningServer) -> None:
    request = posted(H2C, LENGTH) + LAST
    pieces = [request[place : place + 1] for place in range(len(request))]
    assert answers(server, *pieces) == [SPARSEMAX] * 2


def test_many_offers_may_come_at_once(server: RunningServer) -> None:
    assert answers(server, posted(H2C, LENGTH) * 300 + LAST) == [SPARSEMAX] * 301


def test_a_connection_that_is_to_be_closed_is_closed(server: RunningServer) -> None:
    closing = H2C.replace(b"Connection: ", b"Connection: close, ")
    assert answers(server, posted(closing, LENGTH)) == [SPARSEMAX]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_asks_for_http_2_and_is_answered(server: RunningServer) -> None:
    headers = ["-H", "Content-Type: application/json"]
    command = ["curl", "-sS", "--http2", f"{server.url}/v1/map", *headers, "-d", BODY.decode()]
    done = subprocess.run(command, capture_output=True, timeout=30, check=True)
    assert json.loads(done.stdout)["probabilities"] == SPARSEMAX
