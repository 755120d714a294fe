"""A large request is held once, and so is its answer: nothing is copied on the way."""

import httpx
import pytest
import torch
from safetensors.torch import load

from answers import present
from cases import built
from mappings.evaluate import evaluate
from safetensors_bodies import MEDIA_TYPE, body, random_logits
from server import running_server

ROWS, CLASSES = 32, 151_936

ROOM = 64 << 20
"""What a request may take beside its body and its answer (bytes)."""


@pytest.mark.parametrize("mapping", ["softmax", "sparsemax", "entmax"])
def test_a_request_takes_its_body_its_answer_and_little_else(mapping: str) -> None:
    logits = random_logits(ROWS, CLASSES)
    content = body({"logits": logits}, mapping=mapping)
    with running_server() as server, httpx.Client(base_url=server.url, timeout=120) as client:
        headers = {"content-type": MEDIA_TYPE}
        small = body({"logits": logits[:1, :1000]}, mapping=mapping)
        for _ in range(20):
            assert client.post("/v1/map", content=small, headers=headers).status_code == 200
        idle = server.resident_bytes()
        for _ in range(3):
            server.forget_peak()
            answer = client.post("/v1/map", content=content, headers=headers).content
            taken = server.peak_bytes() - idle
            assert taken <= len(content) + len(answer) + ROOM, f"{taken / 2**20:.1f} MiB"
        wanted = evaluate(logits, built(mapping)).probabilities
        assert torch.equal(load(answer)["probabilities"], present(wanted))
