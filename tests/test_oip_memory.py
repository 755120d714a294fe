"""A large request is held once, and so is its answer: tensors are views, answers their memory."""

import httpx
import pytest
import torch

from answers import present
from cases import built
from mappings.evaluate import evaluate
from oip_bodies import HEADER, binary, body, logits, parsed, rows
from server import running_server

ROWS, CLASSES = 32, 151_936

ROOM = 64 << 20
"""What a request may take beside its body and its answer (bytes)."""


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("mapping", ["softmax", "sparsemax", "entmax"])
def test_a_request_takes_its_body_its_answer_and_little_else(mapping: str, padding: int) -> None:
    array = rows(ROWS, CLASSES)
    content, headers = body(logits(array), padding=padding, **binary("probabilities"))
    small, small_headers = body(logits(array[:1, :1000]), **binary("probabilities"))
    path = f"/v2/models/{mapping}/infer"
    with running_server() as server, httpx.Client(base_url=server.url, timeout=120) as client:
        for _ in range(20):
            warm = client.post(path, content=small, headers=small_headers)
            assert warm.status_code == 200
        idle = server.resident_bytes()
        for _ in range(3):
            server.forget_peak()
            response = client.post(path, content=content, headers=headers)
            taken = server.peak_bytes() - idle
            allowed = len(content) + len(response.content) + ROOM
            assert taken <= allowed, f"{taken / 2**20:.1f} of {allowed / 2**20:.1f} MiB"
    assert int(headers[HEADER]) < 1000
    wanted = present(evaluate(torch.from_numpy(array), built(mapping)).probabilities)
    assert parsed(response)[1]["probabilities"].tobytes() == wanted.numpy().tobytes()
