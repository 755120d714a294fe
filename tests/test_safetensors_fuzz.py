"""Ten thousand broken safetensors bodies: each is answered, none as the server's own failure."""

import http.client
import random
from collections import Counter
from collections.abc import Callable
from contextlib import closing

import pytest
import torch

from safetensors_bodies import MEDIA_TYPE, answered, body, post_binary, random_logits
from server import RunningServer, running_server

MUTANTS = 10_000
SECONDS = 20.0
"""No answer may take longer."""

ROOM = 256 << 20
"""How much the server may grow by on the way (bytes)."""

SEEDS: list[tuple[str, bytes]] = [
    (
        "/v1/map",
        body(
            {"logits": random_logits(3, 5), "temperature": torch.ones(3)},
            mapping={"name": "entmax", "alpha": 1.5},
            outputs=["probabilities", "support", "entropy"],
        ),
    ),
    (
        "/v1/map",
        body(
            {
                "logits": random_logits(2, 4, torch.bfloat16),
                "processors.0.ids": torch.tensor([[1, -1], [0, 2]]),
                "processors.0.values": torch.ones(2, 2),
                "jacobian.vector": torch.ones(2, 4),
            },
            mapping="sparsemax",
            processors=["bias", {"name": "top_k", "k": 3}],
            jacobian={"form": "jvp"},
            invalid_rows="report",
        ),
    ),
    (
        "/v1/sample",
        body(
            {
                "logits": random_logits(2, 6, torch.float16),
                "seed": torch.tensor([3, 1 << 63], dtype=torch.uint64),
                "mapping.weights": torch.ones(6, dtype=torch.float64),
            },
            mapping="weighted_softmax",
            samples=4,
            outputs=["tokens", "support"],
        ),
    ),
    (
        "/v1/loss",
        body(
            {"logits": random_logits(2, 3, torch.float64), "targets": torch.tensor([1, 2])},
            mapping="softmax",
            outputs=["loss", "gradient", "jacobian", "parameter_gradients"],
        ),
    ),
]

TOKENS = [
    *(b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b" ", b"-", b"0", b"9", b"1e9", b"null"),
    *(b"true", b"NaN", b"F16", b"BF16", b"F64", b"I64", b"U64", b"BOOL", b"shape", b"dtype"),
    *(b"logits", b"mapping", b"__metadata__", b"data_offsets", b'"a":1,', b"\xff", b"\xed\xa0\x80"),
    *(b"2147483648", b"9223372036854775808", b"18446744073709551616", b"processors.0.k"),
]


def flip(content: bytearray, chance: random.Random) -> None:
    """Changes one bit."""
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)


def overwrite(content: bytearray, chance: random.Random) -> None:
    """Changes a few bytes to any others."""
    start = chance.randrange(len(content))
    content[start : start + 8] = chance.randbytes(len(content[start : start + 8]))


def insert(content: bytearray, chance: random.Random) -> None:
    """Puts something of JSON or of the format somewhere."""
    start = chance.randrange(len(content) + 1)
    content[start:start] = chance.choice(TOKENS)


def replace(content: bytearray, chance: random.Random) -> None:
    """Puts one token in the place of another that is there."""
    token = chance.choice(TOKENS)
    start = content.find(token, chance.randrange(len(content)))
    if start >= 0:
        content[start : start + len(token)] = chance.choice(TOKENS)


def cut(content: bytearray, chance: random.Random) -> None:
    """Leaves a stretch out."""
    start = chance.randrange(len(content))
    del content[start : start + chance.randrange(1, 40)]


def repeat(content: bytearray, chance: random.Random) -> None:
    """Says a stretch twice."""
    start = chance.randrange(len(content))
    content[start:start] = content[start : start + chance.randrange(1, 80)]


def truncate(content: bytearray, chance: random.Random) -> None:
    """Ends early."""
    del content[chance.randrange(len(content)) :]


def lengthen(content: bytearray, chance: random.Random) -> None:
    """Gives the header another length."""
    content[:8] = chance.choice([0, 1, 7, 1 << 20, 1 << 32, 1 << 63, (1 << 64) - 1]).to_bytes(
        8, "little"
    )


MUTATIONS: list[Callable[[bytearray, random.Random], None]] = [
    *(flip, overwrite, insert, replace, cut, repeat, truncate, lengthen),
]


def mutant(number: int) -> tuple[str, bytes]:
    """The path and the body of one mutant; the same at every run."""
    chance = random.Random(number)
    path, seed = chance.choice(SEEDS)
    size = int.from_bytes(seed[:8], "little")
    content = bytearray(seed)
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        if content:
            chance.choice(MUTATIONS)(content, chance)
    if chance.random() < 0.5:
        # Half keep a header whose length is right, so that what is in it gets read.
        size += len(content) - len(seed)
        content[:8] = max(0, size).to_bytes(8, "little")
    return path, bytes(content)


def statuses(server: RunningServer) -> Counter[int]:
    """How often each status answered a mutant."""
    found: Counter[int] = Counter()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=SECONDS)
    with closing(connection):
        for number in range(MUTANTS):
            path, content = mutant(number)
            connection.request("POST", path, content, {"Content-Type": MEDIA_TYPE})
            response = connection.getresponse()
            told = response.read()
            found[response.status] += 1
            known = response.status == 200 or 400 <= response.status < 500
            assert known, f"mutant {number}: {response.status} {told[:500]!r}\n{content!r}"
    return found


@pytest.mark.parametrize(("path", "content"), SEEDS)
def test_what_the_mutants_are_made_of_is_answered(path: str, content: bytes) -> None:
    answered(post_binary(path, content))


def test_every_mutant_is_answered_and_none_as_a_failure_of_the_server() -> None:
    with running_server() as server:
        before = server.resident_bytes()
        found = statuses(server)
        assert server.resident_bytes() - before < ROOM
        assert "Traceback" not in server.output
    assert found.total() == MUTANTS
    # All stages are reached: the format, the fields, the rows and the answer.
    assert {200, 400, 404, 422} <= set(found)
    assert min(found[200], found[400], found[422]) > MUTANTS // 100
