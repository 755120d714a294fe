"""A hundred thousand requests over one connection: memory does not grow with their number."""

import asyncio
import json
import threading
from typing import Any

import numpy as np
import pyarrow as pa

from arrow_client import ArrowClient, fixed
from line_client import LineClient
from server import RunningServer, running_server

MB = 1 << 20
REQUESTS = 100_000
CLASSES = 8
BAD = 100
"""One request in so many is bad (a count)."""

ROWS = 10
"""Rows of a batch (a count)."""

SAMPLES = 50
"""How often the memory is looked at (a count)."""

WARM = 5
"""Looks before memory has to be steady (a count)."""

SECONDS = 300.0


def is_bad(number: int) -> bool:
    return number % BAD == BAD - 1


def line(number: int) -> bytes:
    """A request whose answer tells its number: softmax at T = 0 of a row with one maximum."""
    if is_bad(number):
        return b'{"id": %d, "logits": [1, 2], "mapping": "nope"}\n' % number
    logits = [0.0] * CLASSES
    logits[number % CLASSES] = 1.0
    request = {"id": number, "logits": logits, "mapping": "softmax", "temperature": 0}
    return json.dumps(request).encode() + b"\n"


def assert_flat(sizes: list[int]) -> None:
    """Whether the memory was steady once the server was warm."""
    steady = sizes[WARM:]
    assert len(steady) >= SAMPLES - WARM
    assert max(steady) - min(steady) < 32 * MB, [size // MB for size in sizes]


def test_a_hundred_thousand_lines_are_answered_in_order_and_in_flat_memory() -> None:
    async def use(server: RunningServer) -> tuple[list[int], dict[str, Any]]:
        sizes: list[int] = []
        async with LineClient(server) as client:

            async def send() -> None:
                for start in range(0, REQUESTS, 500):
                    await client.send_bytes(b"".join(map(line, range(start, start + 500))))
                await client.end()

            sending = asyncio.ensure_future(send())
            number = 0
            async for answer in client.answers():
                if "done" in answer:
                    break
                assert (answer["index"], answer["id"]) == (number, number)
                if is_bad(number):
                    assert answer["error"]["code"] == "unknown_name"
                else:
                    assert answer["probabilities"][0].index(1.0) == number % CLASSES
                if number % (REQUESTS // SAMPLES) == 0:
                    sizes.append(server.resident_bytes())
                number += 1
            await sending
        assert number == REQUESTS
        return sizes, answer

    async def bounded(server: RunningServer) -> tuple[list[int], dict[str, Any]]:
        async with asyncio.timeout(SECONDS):
            return await use(server)

    with running_server() as server:
        sizes, last = asyncio.run(bounded(server))
    assert last == {"done": True, "lines": REQUESTS, "failed": REQUESTS // BAD}
    assert_flat(sizes)


def batch(number: int, schema: Any) -> Any:
    """A batch whose answer tells its rows' numbers; a bad one has a row that is NaN."""
    numbers = np.arange(number * ROWS, (number + 1) * ROWS)
    logits = np.eye(CLASSES, dtype=np.float32)[numbers % CLASSES]
    if is_bad(number):
        logits[number % ROWS] = np.nan
    return pa.record_batch([fixed(logits, pa.float32())], schema=schema)


def test_a_hundred_thousand_rows_of_batches_are_answered_in_order_and_in_flat_memory() -> None:
    batches = REQUESTS // ROWS
    schema = pa.schema(
        {"logits": pa.list_(pa.float32(), CLASSES)},
        {"probmap": '{"mapping": {"name": "softmax", "temperature": 0}}'},
    )
    sizes: list[int] = []
    failed = 0
    with running_server() as server, ArrowClient(server) as client:

        def send() -> None:
            with pa.ipc.new_stream(client, schema) as writer:
                for number in range(batches):
                    writer.write_batch(batch(number, schema))
            client.end()

        sending = threading.Thread(target=send, daemon=True)
        sending.start()
        number = 0
        for answer in pa.ipc.open_stream(client.answer()):
            assert len(answer) == ROWS
            masses = answer.column("probabilities")
            if is_bad(number):
                failed += 1
                assert masses.null_count == ROWS
                assert (
                    f"row {number % ROWS}: nan"
                    in json.loads(answer.column("error")[0].as_py())["detail"]
                )
            else:
                assert answer.column("error").null_count == ROWS
                found = masses.flatten().to_numpy().reshape(ROWS, CLASSES).argmax(1)
                assert (found == np.arange(number * ROWS, (number + 1) * ROWS) % CLASSES).all()
            if number % (batches // SAMPLES) == 0:
                sizes.append(server.resident_bytes())
            number += 1
        sending.join(SECONDS)
        assert not sending.is_alive()
    assert (number, failed) == (batches, batches // BAD)
    assert_flat(sizes)


def test_a_client_that_stops_reading_batches_is_held_at_a_bounded_buffer() -> None:
    batches, classes = 400, 32_000
    schema = pa.schema(
        {"logits": pa.list_(pa.float32(), classes)}, {"probmap": '{"mapping": "softmax"}'}
    )
    wide = pa.record_batch([fixed(np.zeros((2, classes)), pa.float32())], schema=schema)
    sent = 0
    with running_server() as server, ArrowClient(server) as client:

        def send() -> None:
            nonlocal sent
            with pa.ipc.new_stream(client, schema) as writer:
                for _ in range(batches):
                    writer.write_batch(wide)
                    sent += 1
            client.end()

        sending = threading.Thread(target=send, daemon=True)
        sending.start()
        sending.join(5)
        stopped_at, size = sent, server.resident_bytes()
        sending.join(2)
        # Nothing moves any more: the rest waits in the client.
        assert sent == stopped_at < batches
        assert server.resident_bytes() - size < 32 * MB
        answers = list(pa.ipc.open_stream(client.answer()))
        sending.join(60)
        assert len(answers) == batches
        assert sum(answer.column("error").null_count for answer in answers) == 2 * batches


def test_a_batch_that_failed_is_let_go() -> None:
    classes, batches = 1 << 20, 60
    schema = pa.schema(
        {"logits": pa.list_(pa.float32(), classes)}, {"probmap": '{"mapping": "softmax"}'}
    )
    bad = pa.record_batch([fixed(np.full((4, classes), np.nan), pa.float32())], schema=schema)
    with running_server() as server, ArrowClient(server) as client:
        before = server.resident_bytes()
        with pa.ipc.new_stream(client, schema) as writer:
            writer.write_batch(bad)
            reader = pa.ipc.open_stream(client.answer())
            for _ in range(batches):
                answer = reader.read_next_batch()
                assert answer.column("error").null_count == 0
                writer.write_batch(bad)
        # Together they take 1 GB, their answers as much again.
        assert server.resident_bytes() - before < 256 * MB
