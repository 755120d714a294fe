"""Compressed bodies: inflated within limits on every route; answers compressed on request."""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator

import httpx
import pytest

from server import RunningServer, running_server, shared_client

BODY = json.dumps({"logits": [0, 0.5, 1], "mapping": "sparsemax"}).encode()
ANSWER = [[0.0, 0.25, 0.75]]
ROUTES = ("/v1/map", "/v1/sample", "/v1/loss")


def raw_deflate(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-15)
    return stream.compress(data) + stream.flush()


CODINGS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "x-gzip": ("x-gzip", gzip.compress),
    "loud": ("GZIP", gzip.compress),
    "deflate": ("deflate", zlib.compress),
    "raw deflate": ("deflate", raw_deflate),
    "identity": ("identity", bytes),
}


def post(content: bytes, coding: str, path: str = "/v1/map", **headers: str) -> httpx.Response:
    return shared_client().post(
        path, content=content, headers={"Content-Encoding": coding, **headers}
    )


@pytest.mark.parametrize("name", CODINGS)
def test_a_compressed_body_is_read(name: str) -> None:
    coding, compress = CODINGS[name]
    response = post(compress(BODY), coding)
    assert response.status_code == 200, response.text
    assert response.json()["probabilities"] == ANSWER


@pytest.mark.parametrize("name", CODINGS)
def test_a_large_compressed_body_is_read(name: str) -> None:
    coding, compress = CODINGS[name]
    logits = [float(place % 97) for place in range(400_000)]
    body = json.dumps({"logits": logits, "mapping": "softmax", "outputs": ["support_size"]})
    response = post(compress(body.encode()), coding)
    assert response.status_code == 200, response.text
    assert response.json()["support_size"] == [400_000]


@pytest.mark.parametrize("path", ROUTES)
def test_every_evaluation_reads_compressed_bodies(path: str) -> None:
    fields = {"logits": [0, 1], "mapping": "softmax"} | ({"targets": [0]} if "loss" in path else {})
    assert post(gzip.compress(json.dumps(fields).encode()), "gzip", path).status_code == 200


@pytest.mark.parametrize(
    ("content", "coding"),
    [
        (gzip.compress(BODY, mtime=0)[:-1], "gzip"),
        (gzip.compress(BODY, mtime=0)[:12], "gzip"),
        (gzip.compress(BODY, mtime=0) + b"x", "gzip"),
        (zlib.compress(BODY)[:-3], "deflate"),
        (zlib.compress(BODY) + b"x", "deflate"),
        (b"", "gzip"),
        (b"", "deflate"),
        (BODY, "gzip"),
        (BODY, "deflate"),
        (gzip.compress(BODY, mtime=0), "deflate"),
        (gzip.compress(BODY * 5000, mtime=0)[:-9], "gzip"),
        (gzip.compress(BODY, mtime=0)[:-8] + b"\0" * 8, "gzip"),
    ],
)
def test_a_body_not_compressed_as_it_says_is_malformed(content: bytes, coding: str) -> None:
    response = post(content, coding)
    assert response.status_code == 400
    assert response.json()["code"] == "malformed_body"
    assert coding in response.json()["detail"]


@pytest.mark.parametrize("coding", ["br", "zstd", "compress", "gzip, gzip", "gzip, deflate", "?"])
def test_another_coding_is_refused(coding: str) -> None:
    response = post(BODY, coding)
    assert response.status_code == 415
    assert response.json()["code"] == "unsupported_encoding"
    assert "gzip or deflate" in response.json()["detail"]


@pytest.fixture(scope="module")
def limited() -> Iterator[RunningServer]:
    with running_server("--max-body-bytes", "1000000") as server:
        yield server


@pytest.mark.parametrize("name", ["gzip", "deflate"])
def test_a_bomb_is_stopped_at_the_limit(limited: RunningServer, name: str) -> None:
    coding, compress = CODINGS[name]
    bomb = compress(b" " * 800_000_000)
    assert len(bomb) < 1_000_000
    before = limited.resident_bytes()
    for _ in range(3):
        response = httpx.post(
            f"{limited.url}/v1/map", content=bomb, headers={"Content-Encoding": coding}, timeout=60
        )
        assert response.status_code == 413
        assert "PROBMAP_MAX_BODY_BYTES" in response.json()["detail"]
    assert limited.resident_bytes() - before < 32 << 20


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ("gzip", "gzip"),
        ("deflate", "deflate"),
        ("x-gzip", "gzip"),
        ("gzip, identity;q=0", "gzip"),
        ("gzip;q=1.0, deflate;q=0.5", "gzip"),
        ("gzip;q=0.5, deflate", "deflate"),
        ("deflate, *;q=0", "deflate"),
        # What HTTP libraries say unasked.
        ("gzip, deflate", None),
        ("gzip, deflate, br", None),
        ("*", None),
        ("", None),
        ("identity", None),
        ("gzip;q=0", None),
        ("gzip;q=abc", None),
        ("gzip;q=nan", None),
        ("br", None),
    ],
)
def test_an_answer_is_compressed_where_that_is_asked_for(asked: str, given: str | None) -> None:
    response = post(BODY, "identity", **{"Accept-Encoding": asked})
    assert response.headers.get("content-encoding") == given
    assert response.json()["probabilities"] == ANSWER


@pytest.mark.parametrize("path", ["/v2", "/v1/mappings", "/openapi.json", "/nothing"])
def test_nothing_but_an_evaluation_is_compressed(path: str) -> None:
    response = shared_client().get(path, headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in response.headers


def test_an_error_is_not_compressed() -> None:
    response = post(b"{", "identity", **{"Accept-Encoding": "gzip"})
    assert response.status_code == 400
    assert "content-encoding" not in response.headers
