"""Other requests are not held up while the largest bodies are read, computed and written."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson
import pytest

from server import shared_server

pytestmark = pytest.mark.alone

PROBE_SECONDS = 0.1

POST = """
import sys, httpx
url, path, answer = sys.argv[1:]
response = httpx.post(url, content=open(path, "rb").read(), timeout=300)
open(answer, "wb").write(response.content)
assert response.status_code == 200, response.text[:2000]
"""


def posted_under_probes(body: bytes, folder: Path) -> tuple[bytes, list[float]]:
    """The answer to a body sent by another process, and how long probes took meanwhile."""
    server = shared_server()
    request, answer = folder / "request.json", folder / "answer.json"
    request.write_bytes(body)
    arguments = [f"{server.url}/v1/map", str(request), str(answer)]
    seconds = []
    with httpx.Client(base_url=server.url) as client:
        sender = subprocess.Popen([sys.executable, "-c", POST, *arguments])
        while sender.poll() is None:
            started = time.perf_counter()
            assert client.get("/v2/health/live").status_code == 200
            seconds.append(time.perf_counter() - started)
            time.sleep(0.005)
    assert sender.returncode == 0
    return answer.read_bytes(), seconds


def assert_not_held_up(seconds: list[float]) -> None:
    assert len(seconds) > 50
    assert np.quantile(seconds, 0.99) < PROBE_SECONDS


def test_probes_are_answered_while_30_megabytes_are_mapped(tmp_path: Path) -> None:
    logits = np.random.default_rng(0).standard_normal((10, 151_936))
    body = orjson.dumps({"logits": logits, "mapping": "softmax"}, option=orjson.OPT_SERIALIZE_NUMPY)
    assert len(body) > 29_000_000
    answer, seconds = posted_under_probes(body, tmp_path)
    assert_not_held_up(seconds)
    got = np.array(orjson.loads(answer)["probabilities"])
    wanted = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(got, wanted, rtol=1e-12)


def test_probes_are_answered_while_the_largest_body_is_mapped(tmp_path: Path) -> None:
    # One row, many times: the body is as large as it may be and quickly made.
    rows = 6000
    row = np.random.default_rng(1).standard_normal(1100)
    text = orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY)
    body = b'{"logits":[%b],"mapping":"sparsemax","outputs":["support","entropy"]}'
    body %= b",".join([text] * rows)
    assert 120e6 < len(body) <= 128 << 20
    answer, seconds = posted_under_probes(body, tmp_path)
    assert_not_held_up(seconds)
    got: dict[str, Any] = orjson.loads(answer)
    assert got["rows"] == rows
    assert all(support == got["support"][0] for support in got["support"])


def test_memory_is_given_back(tmp_path: Path) -> None:
    logits = np.zeros((10, 151_936))
    body = orjson.dumps({"logits": logits, "mapping": "softmax"}, option=orjson.OPT_SERIALIZE_NUMPY)
    sizes = []
    for _ in range(4):
        posted_under_probes(body, tmp_path)
        sizes.append(shared_server().resident_bytes())
    assert sizes[-1] < sizes[0] + 100e6, sizes
