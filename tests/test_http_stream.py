"""POST /v1/stream over real sockets: many requests on one connection, none held up by another."""

import asyncio
import json
import random
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import httpx
import pytest

from line_client import LineClient, exchanged
from server import RunningServer, faulty_server, metric, running_server

MB = 1 << 20
PATHS = {"map": "/v1/map", "sample": "/v1/sample", "loss": "/v1/loss"}


@pytest.fixture(scope="module", params=["httptools", "h11"])
def server(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    """A server with the faulty mapping, by each parser."""
    with faulty_server("--http-parser", request.param) as running:
        yield running


def line(number: int, **more: Any) -> dict[str, Any]:
    """A request whose answer tells its number: softmax at T = 0 of a row with one maximum."""
    logits = [0.0] * 8
    logits[number % 8] = 1.0
    return {"id": number, "logits": logits, "mapping": "softmax", "temperature": 0, **more}


def slow(seconds: float, **more: Any) -> dict[str, Any]:
    mapping = {"name": "faulty", "fault": "slow", "seconds": seconds}
    return {"logits": [1, 2], "mapping": mapping, **more}


def assert_answers(answer: dict[str, Any], number: int) -> None:
    """The answer to `line(number)`."""
    assert (answer["index"], answer["id"]) == (number, number)
    assert answer["probabilities"] == [[float(n == number % 8) for n in range(8)]]


async def until(claim: Callable[[], bool], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not claim():
            await asyncio.sleep(0.05)


def ran(work: Awaitable[Any]) -> Any:
    """The outcome of asynchronous work, which must end."""

    async def bounded() -> Any:
        async with asyncio.timeout(120):
            return await work

    return asyncio.run(bounded())


def test_every_line_is_answered_as_a_request_of_its_own(server: RunningServer) -> None:
    requests: list[dict[str, Any]] = [
        {"op": "map", "logits": [[1, None, 3]], "mapping": {"name": "entmax", "alpha": 1.5},
         "outputs": ["probabilities", "support", "entropy"]},
        {"op": "sample", "logits": [[1, 2, 3]] * 2, "mapping": "sparsemax", "samples": 3,
         "seed": [5, 6]},
        {"op": "loss", "logits": [[1, 2]], "mapping": "softmax", "targets": [1]},
        {"logits": [[1, 2], [3]], "mapping": "softmax", "processors": ["p_less"]},
        {"logits": [], "mapping": "softmax"},
    ]  # fmt: skip
    *answers, last = ran(exchanged(server, *requests))
    assert last == {"done": True, "lines": 5, "failed": 0}
    for index, (request, answer) in enumerate(zip(requests, answers, strict=True)):
        alone = {name: value for name, value in request.items() if name != "op"}
        wanted = httpx.post(f"{server.url}{PATHS[request.get('op', 'map')]}", json=alone).json()
        assert answer == {"index": index, "id": None, **wanted}


@pytest.mark.parametrize(
    ("text", "status", "code"),
    [
        (b"{", 400, "malformed_body"),
        (b"nonsense", 400, "malformed_body"),
        (b"\xff\xfe", 400, "malformed_body"),
        (b"[1, 2]", 422, "invalid_request"),
        (b"{}", 422, "invalid_request"),
        (b'{"logits": [1], "mapping": "nope"}', 404, "unknown_name"),
        (b'{"logits": ["1"], "mapping": "softmax"}', 422, "invalid_request"),
        (b'{"logits": [NaN], "mapping": "softmax"}', 400, "malformed_body"),
        (b'{"logits": [null], "mapping": "softmax"}', 422, "invalid_row"),
        (b'{"op": "delete", "logits": [1], "mapping": "softmax"}', 422, "invalid_request"),
        (b'{"op": ["map"], "logits": [1], "mapping": "softmax"}', 422, "invalid_request"),
        (b'{"id": true, "logits": [1], "mapping": "softmax"}', 422, "invalid_request"),
        (b'{"id": {"a": 1}, "logits": [1], "mapping": "softmax"}', 422, "invalid_request"),
        (b'{"id": "' + b"x" * 300 + b'", "logits": [1], "mapping": "softmax"}', 422,
         "invalid_request"),
        (b'{"logits": [666, 1], "mapping": {"name": "faulty", "fault": "error"}}', 500,
         "internal_error"),
    ],
)  # fmt: skip
def test_a_bad_line_is_answered_in_its_place(
    server: RunningServer, text: bytes, status: int, code: str
) -> None:
    async def use() -> list[dict[str, Any]]:
        async with LineClient(server) as client:
            await client.send(line(0))
            await client.send_bytes(text + b"\n")
            await client.send(line(2))
            await client.end()
            return [answer async for answer in client.answers()]

    first, bad, second, last = ran(use())
    assert_answers(first, 0)
    assert_answers(second, 2)
    assert bad["index"] == 1
    assert (bad["error"]["status"], bad["error"]["code"]) == (status, code)
    assert "injected" not in json.dumps(bad)
    assert last == {"done": True, "lines": 3, "failed": 1}


@pytest.mark.parametrize("seed", range(4))
def test_lines_may_be_cut_anywhere(server: RunningServer, seed: int) -> None:
    chance = random.Random(seed)
    ends = [chance.choice([b"\n", b"\r\n", b"\n\n", b"\n \n"]) for _ in range(40)]
    ends[-1] = chance.choice([b"", b"\n"])
    texts = [json.dumps(line(n)).encode() + end for n, end in enumerate(ends)]
    whole = b"".join(texts)
    cuts = sorted(chance.sample(range(1, len(whole)), 60))

    async def use() -> list[dict[str, Any]]:
        async with LineClient(server) as client:
            for start, stop in zip([0, *cuts], [*cuts, len(whole)], strict=True):
                await client.send_bytes(whole[start:stop])
                await asyncio.sleep(chance.choice([0, 0, 0.002]))
            await client.end()
            return [answer async for answer in client.answers()]

    *answers, last = ran(use())
    for number, answer in enumerate(answers):
        assert_answers(answer, number)
    assert last == {"done": True, "lines": 40, "failed": 0}


def test_an_empty_stream_is_answered(server: RunningServer) -> None:
    assert ran(exchanged(server)) == [{"done": True, "lines": 0, "failed": 0}]


def test_answers_come_while_requests_are_still_sent(server: RunningServer) -> None:
    async def use() -> None:
        async with LineClient(server) as client:
            answers = client.answers()
            for number in range(5):
                await client.send(line(number))
                assert_answers(await anext(answers), number)
            await client.end()
            assert (await anext(answers))["done"]

    ran(use())


def test_answers_keep_the_order_of_the_requests(server: RunningServer) -> None:
    *answers, _ = ran(exchanged(server, slow(0.3), *(line(n) for n in range(1, 20))))
    assert [answer["index"] for answer in answers] == list(range(20))


def test_answers_may_come_as_they_are_ready(server: RunningServer) -> None:
    requests = [slow(0.5), *(line(n) for n in range(1, 20))]
    *answers, last = ran(exchanged(server, *requests, query="?order=completion"))
    assert sorted(answer["index"] for answer in answers) == list(range(20))
    assert answers[0]["index"] != 0
    assert last == {"done": True, "lines": 20, "failed": 0}


def test_answers_may_be_events(server: RunningServer) -> None:
    async def use() -> tuple[str, bytes]:
        async with LineClient(server, Accept="text/event-stream") as client:
            await client.send(line(0), {}, line(2))
            await client.end()
            text = b"".join([part async for part in client.texts()])
            return client.headers["content-type"], text

    media_type, text = ran(use())
    assert media_type == "text/event-stream"
    events = text.decode().split("\n\n")
    assert events.pop() == ""
    assert all(event.startswith("data: ") and "\n" not in event for event in events)
    first, bad, second, last = (json.loads(event.removeprefix("data: ")) for event in events)
    assert_answers(first, 0)
    assert bad["error"]["code"] == "invalid_request"
    assert_answers(second, 2)
    assert last == {"done": True, "lines": 3, "failed": 1}


@pytest.mark.parametrize(
    ("query", "headers", "status"),
    [
        ("?order=random", {}, 422),
        ("?window=3", {}, 422),
        ("", {"content-type": "text/csv"}, 415),
        ("", {"content-encoding": "gzip"}, 415),
    ],
)
def test_a_stream_that_cannot_be_is_refused(
    server: RunningServer, query: str, headers: dict[str, str], status: int
) -> None:
    sent = {"content-type": "application/jsonl", **headers}
    answer = httpx.post(f"{server.url}/v1/stream{query}", content=b"{}\n", headers=sent)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_line_above_the_limit_is_dropped_and_the_next_is_read() -> None:
    async def use(server: RunningServer) -> list[dict[str, Any]]:
        long = b'{"logits": [' + b"0.12345," * 200_000 + b"1]}\n"
        async with LineClient(server) as client:
            for start in range(0, len(long), 100_000):
                await client.send_bytes(long[start : start + 100_000])
            await client.send(line(1))
            await client.end()
            return [answer async for answer in client.answers()]

    with running_server("--max-body-bytes", "100000") as server:
        long, good, last = ran(use(server))
    assert (long["index"], long["error"]["code"]) == (0, "too_large")
    assert "--max-body-bytes" in long["error"]["detail"]
    assert_answers(good, 1)
    assert last == {"done": True, "lines": 2, "failed": 1}


def test_a_client_that_stops_reading_is_held_at_a_bounded_buffer(server: RunningServer) -> None:
    lines, classes = 2000, 4000
    wide = {"logits": [0.0] * classes, "mapping": "softmax"}
    text = json.dumps(wide).encode() + b"\n"

    async def use() -> int:
        async with LineClient(server) as client:
            sent = 0

            async def send() -> None:
                nonlocal sent
                for _ in range(lines):
                    await client.send_bytes(text)
                    sent += 1
                await client.end()

            sending = asyncio.ensure_future(send())
            await asyncio.sleep(3)
            stopped_at, size = sent, server.resident_bytes()
            await asyncio.sleep(7)
            # Nothing moves any more: the rest waits in the client.
            assert sent == stopped_at < lines
            assert server.resident_bytes() - size < 32 * MB
            answers = [answer async for answer in client.answers()]
            await sending
            assert [answer["index"] for answer in answers[:-1]] == list(range(lines))
            assert answers[-1] == {"done": True, "lines": lines, "failed": 0}
            return stopped_at

    # Each answer takes 80 kB: all of them would be 160 MB.
    assert ran(use()) < lines


def test_who_leaves_a_stream_ends_its_work(server: RunningServer) -> None:
    before = metric(server, "probmap_batch_rows_sum")
    # So slow that a client reads every answer before the next ones come.
    slow = {"name": "faulty", "fault": "slow", "seconds": 0.2}

    async def use() -> None:
        async with LineClient(server) as client:
            answers = client.answers()

            async def send() -> None:
                for _ in range(100_000):
                    await client.send({"logits": [1, 2], "mapping": slow})

            sending = asyncio.ensure_future(send())
            for _ in range(500):
                await anext(answers)
            sending.cancel()
            client.leave()
        await until(lambda: metric(server, "probmap_inflight_bytes") == 0)

    ran(use())
    computed = metric(server, "probmap_batch_rows_sum") - before
    time.sleep(0.5)
    assert metric(server, "probmap_batch_rows_sum") - before == computed
    # What was read, what came meanwhile, and a window of 64.
    assert 500 <= computed <= 500 + 4 * 64


def test_who_sends_nothing_for_long_is_told_so() -> None:
    async def use(server: RunningServer) -> list[dict[str, Any]]:
        async with LineClient(server) as client:
            await client.send(line(0))
            return [answer async for answer in client.answers()]

    with running_server("--stream-idle-seconds", "0.5") as server:
        good, last = ran(use(server))
    assert_answers(good, 0)
    assert (last["done"], last["lines"]) == (False, 1)
    assert last["error"]["code"] == "body_timeout"


def test_told_to_stop_the_server_ends_its_streams() -> None:
    async def use(server: RunningServer) -> list[dict[str, Any]]:
        async with LineClient(server) as client:
            answers = client.answers()
            await client.send(line(0), slow(1.0, id=1))
            found = [await anext(answers)]
            server.process.send_signal(signal.SIGTERM)
            return found + [answer async for answer in answers]

    with faulty_server() as server:
        first, second, last = ran(use(server))
        assert server.process.wait(10) == 0
        assert "Traceback" not in server.output
    assert_answers(first, 0)
    assert second["probabilities"]
    assert (last["done"], last["error"]["code"]) == (False, "not_ready")


def test_streams_do_not_hold_each_other_up(server: RunningServer) -> None:
    async def use() -> list[list[dict[str, Any]]]:
        numbers = range(100)
        return await asyncio.gather(
            *(exchanged(server, *map(line, numbers)) for _ in range(5)),
            exchanged(server, slow(0.5)),
        )

    *found, _ = ran(use())
    for *answers, last in found:
        for number, answer in enumerate(answers):
            assert_answers(answer, number)
        assert last == {"done": True, "lines": 100, "failed": 0}
