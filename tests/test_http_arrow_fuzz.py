"""Thousands of broken Arrow streams: each is answered, none as the server's own failure."""

import http.client
import json
import random
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from arrow_client import ARROW, fixed, stream_of, table_of
from server import RunningServer, running_server, shared_client

MUTANTS = 6_000
SECONDS = 20.0
"""No answer may take longer."""

ROOM = 256 << 20
"""How much the server may grow by on the way (bytes)."""


def seed(columns: dict[str, Any], **fields: Any) -> bytes:
    """A stream of one batch, thrice."""
    batch = pa.record_batch(columns)
    schema = batch.schema.with_metadata({"probmap": json.dumps(fields)})
    return stream_of(schema, batch, batch, batch)


SEEDS = [
    seed(
        {"logits": fixed(np.ones((3, 5)), pa.float32()), "alpha": pa.array([1.5, 2, 3])},
        mapping="entmax",
        outputs=["probabilities", "support", "entropy"],
    ),
    seed(
        {
            "logits": pa.array([[1, None, 3], [2], [3, 1]], pa.list_(pa.float64())),
            "processors.0.ids": pa.array([[1], [0], [0, 1]], pa.list_(pa.int32())),
        },
        mapping="sparsemax",
        processors=["ban"],
        outputs=["log_probabilities", "support"],
        support_limit=2,
        invalid_rows="report",
    ),
    seed(
        {
            "logits": fixed(np.eye(2, 6), pa.float16()),
            "seed": pa.array([3, 1 << 63], pa.uint64()),
            "mapping.weights": fixed(np.ones((2, 6)), pa.float64()),
        },
        op="sample",
        mapping="weighted_softmax",
        samples=4,
        outputs=["tokens", "support", "probabilities"],
    ),
    seed(
        {
            "logits": pa.array([[0, None, 1], [3, 2, 1]], pa.list_(pa.float32(), 3)),
            "targets": pa.array([[0, 0, 1], [1, 0, 0]], pa.large_list(pa.float32())),
        },
        op="loss",
        mapping="softmax",
        outputs=["loss", "gradient"],
    ),
]

NUMBERS = [0, 1, 2, 3, 7, 8, 127, 255, 256, 1 << 15, 1 << 16, 1 << 31, (1 << 32) - 1]
LONG_NUMBERS = [*NUMBERS, 1 << 40, 1 << 62, 1 << 63, (1 << 64) - 1]

Mutation = Callable[[bytearray, random.Random], None]


def flip(content: bytearray, chance: random.Random) -> None:
    """Changes one bit."""
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)


def overwrite(content: bytearray, chance: random.Random) -> None:
    """Changes a few bytes to any others."""
    start = chance.randrange(len(content))
    content[start : start + 8] = chance.randbytes(len(content[start : start + 8]))


def renumber(content: bytearray, chance: random.Random) -> None:
    """Puts another number where numbers lie: every 2, 4 or 8 bytes."""
    width = chance.choice([2, 4, 8])
    start = chance.randrange(len(content)) // width * width
    number = chance.choice(LONG_NUMBERS) % (1 << 8 * width)
    content[start : start + width] = number.to_bytes(width, "little")


def shift(content: bytearray, chance: random.Random) -> None:
    """Adds to a number, or takes from it, so that it still looks right."""
    start = chance.randrange(len(content)) // 4 * 4
    number = int.from_bytes(content[start : start + 4], "little") + chance.randrange(-64, 65)
    content[start : start + 4] = (number % (1 << 32)).to_bytes(4, "little")


def cut(content: bytearray, chance: random.Random) -> None:
    """Leaves a stretch out, often one that keeps the rest aligned."""
    start = chance.randrange(len(content)) // 8 * 8
    del content[start : start + chance.choice([1, 3, 8, 8, 16, 64])]


def repeat(content: bytearray, chance: random.Random) -> None:
    """Says a stretch twice."""
    start = chance.randrange(len(content)) // 8 * 8
    content[start:start] = content[start : start + chance.choice([5, 8, 64, 200])]


def truncate(content: bytearray, chance: random.Random) -> None:
    """Ends early."""
    del content[chance.randrange(len(content)) :]


MUTATIONS: list[Mutation] = [
    *(flip, flip, overwrite, renumber, renumber, shift, shift, cut, repeat, truncate),
]


def mutant(number: int) -> bytes:
    """One mutant; the same at every run."""
    chance = random.Random(number)
    content = bytearray(chance.choice(SEEDS))
    # Half leave the schema as it is, so that the batches get read.
    kept = int.from_bytes(content[4:8], "little") + 8 if chance.random() < 0.5 else 0
    head, rest = content[:kept], content[kept:]
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        if rest:
            chance.choice(MUTATIONS)(rest, chance)
    return bytes(head + rest)


def outcomes(server: RunningServer) -> Counter[str]:
    """How often mutants were refused, failed in part, and were answered."""
    found: Counter[str] = Counter()
    for number in range(MUTANTS):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=SECONDS)
        with closing(connection):
            content = mutant(number)
            connection.request("POST", "/v1/stream", content, {"Content-Type": ARROW})
            response = connection.getresponse()
            told = response.read()
            about = f"mutant {number}: {response.status} {told[:500]!r}\n{content!r}"
            assert response.status == 200 or 400 <= response.status < 500, about
            if response.status != 200:
                found[str(response.status)] += 1
                continue
            table = pa.ipc.open_stream(told).read_all()
            table.validate(full=True)
            errors = [text for text in table["error"].to_pylist() if text]
            assert not any("internal_error" in text for text in errors), about
            found["failed" if errors else "answered"] += 1
    return found


@pytest.mark.parametrize("content", SEEDS)
def test_what_the_mutants_are_made_of_is_answered(content: bytes) -> None:
    response = shared_client().post("/v1/stream", content=content, headers={"Content-Type": ARROW})
    assert response.status_code == 200, response.text
    assert table_of(response.content)["error"].null_count == 3 * len(
        pa.ipc.open_stream(content).read_next_batch()
    )


def test_every_mutant_is_answered_and_none_as_a_failure_of_the_server() -> None:
    with running_server() as server:
        before = server.resident_bytes()
        found = outcomes(server)
        assert server.resident_bytes() - before < ROOM
        assert "Traceback" not in server.output
    assert found.total() == MUTANTS
    # All stages are reached: the framing, the schema, the batches and the answer.
    assert {"400", "404", "422", "failed", "answered"} <= set(found)
    assert min(found["400"], found["failed"], found["answered"]) > MUTANTS // 20
