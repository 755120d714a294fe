"""Streams of probmap_client: so many requests in flight, results in order, errors in place."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from client_faces import FACES, opened
from probmap_client import (
    AsyncClient,
    Client,
    InvalidInput,
    LossRequest,
    MapRequest,
    ProbmapError,
    Refused,
    SampleRequest,
)
from probmap_client.stream import Order
from scripted_server import OK, Step, scripted
from server import shared_server


@pytest.fixture(scope="module", params=FACES)
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    with opened(request.param, shared_server().url) as client:
        yield client


def batches(count: int) -> list[Any]:
    generator = np.random.default_rng(5)
    return [generator.normal(size=(2, 3 + place % 4)) for place in range(count)]


def test_results_come_in_the_order_of_their_logits(client: Client) -> None:
    given = batches(30)
    wanted = [client.map(logits, "entmax", alpha=1.25).probabilities for logits in given]
    found = list(client.stream(given, "entmax", window=7, alpha=1.25))
    assert [result.index for result in found] == list(range(30))
    for result, exact in zip(found, wanted, strict=True):
        assert result.probabilities.tobytes() == exact.tobytes()


def test_requests_of_every_kind_may_be_mixed(client: Client) -> None:
    logits = np.zeros((1, 4))
    mapped, drawn, lost = client.stream(
        [
            MapRequest(logits, "softmax"),
            SampleRequest(logits, "softmax", seed=3, samples=2),
            LossRequest(logits, "softmax", [1]),
        ]
    )
    assert mapped.probabilities.tolist() == [[0.25] * 4]
    assert drawn.tensors["tokens"].shape == (1, 2)
    assert lost.tensors["loss"].tolist() == pytest.approx([np.log(4)])


def test_results_come_as_they_are_ready_where_that_is_asked(client: Client) -> None:
    found = list(client.stream(batches(20), "softmax", order="completion", window=4))
    assert sorted(result.index for result in found) == list(range(20))


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("window", [1, 3, 8])
def test_no_more_requests_are_in_flight_than_the_window(face: str, window: int) -> None:
    pulled = 0

    def items() -> Iterator[Any]:
        nonlocal pulled
        for _ in range(24):
            pulled += 1
            yield [0.0, 1.0]

    with scripted(Step(seconds=0.02)) as server, opened(face, server.url) as client:
        for count, _ in enumerate(client.stream(items(), "softmax", window=window)):
            assert pulled <= count + 1 + window
    assert server.most <= window
    assert len(server.seen) == 24
    assert server.seen[-1].connection <= window


@pytest.mark.parametrize("face", FACES)
def test_a_slow_request_holds_up_those_behind_it_only_in_order(face: str) -> None:
    steps = [Step(seconds=1.5), OK]
    # Which of the two quick ones is ready first, nobody says.
    orders: list[tuple[Order, list[list[int]]]] = [
        ("input", [[0, 1, 2]]),
        ("completion", [[1, 2, 0], [2, 1, 0]]),
    ]
    for order, right in orders:
        with scripted(*steps) as server, opened(face, server.url) as client:
            # The first is on its way before the others are taken.
            def items(server: Any = server) -> Iterator[Any]:
                yield [0.0]
                while not server.seen:
                    threading.Event().wait(0.01)
                yield from ([1.0], [2.0])

            given: Any = items() if face == "sync" else _asynchronous(items())
            found = client.stream(given, "softmax", order=order)
            assert [result.index for result in found] in right


async def _asynchronous(items: Iterator[Any]) -> AsyncIterator[Any]:
    while (item := await asyncio.to_thread(next, items, None)) is not None:
        yield item


BAD: list[Any] = [[0.0, 1.0], [None, None], ["x"], [0.0, 1.0]]


def test_an_error_stands_in_its_place_where_that_is_asked(client: Client) -> None:
    found = list(client.stream(BAD, "softmax", errors="return"))
    first, refused, unfit, last = found
    assert not isinstance(first, ProbmapError)
    assert not isinstance(last, ProbmapError)
    assert isinstance(refused, Refused)
    assert refused.code == "invalid_row"
    assert isinstance(unfit, InvalidInput)
    assert [outcome.index for outcome in found] == [0, 1, 2, 3]


def test_an_error_ends_the_stream_at_its_place(client: Client) -> None:
    stream = client.stream(BAD, "softmax")
    assert next(stream).index == 0
    with pytest.raises(Refused, match="no unmasked class") as refused:
        next(stream)
    assert refused.value.index == 1
    assert list(stream) == []


def test_an_error_of_the_input_is_the_callers_own(client: Client) -> None:
    def items() -> Iterator[Any]:
        yield [0.0]
        raise KeyError("theirs")

    with pytest.raises(KeyError, match="theirs"):
        list(client.stream(items(), "softmax", window=1))


def test_what_makes_no_stream_is_refused(client: Client) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        list(client.stream(batches(1), "softmax", window=0))
    with pytest.raises(TypeError, match="needs their mapping"):
        list(client.stream(batches(1)))
    with pytest.raises(TypeError, match="alhpa"):
        list(client.stream(batches(1), alhpa=2))  # type: ignore[call-overload]


@pytest.mark.parametrize("face", FACES)
def test_leaving_a_stream_drops_what_is_not_sent(face: str) -> None:
    with scripted(Step(seconds=0.05)) as server, opened(face, server.url) as client:
        stream = client.stream(batches(200), "softmax", window=4)
        next(stream)
        stream.close()  # type: ignore[attr-defined]
        assert client.map([0.0], "softmax").rows == 1
    assert len(server.seen) <= 10


def test_an_input_may_wait_for_a_result() -> None:
    async def main() -> list[int]:
        answered: asyncio.Queue[int] = asyncio.Queue()

        async def items() -> AsyncIterator[list[float]]:
            yield [0.0]
            for _ in range(4):
                await answered.get()
                yield [0.0]

        found = []
        async with AsyncClient(shared_server().url) as client:
            async for result in client.stream(items(), "softmax", window=8):
                found.append(result.index)
                answered.put_nowait(result.index)
        return found

    assert asyncio.run(asyncio.wait_for(main(), 60)) == [0, 1, 2, 3, 4]


def test_threads_share_a_client() -> None:
    given = batches(64)
    with Client(shared_server().url, connections=4) as client:
        wanted = [client.map(logits, "sparsemax").probabilities.tobytes() for logits in given]
        with ThreadPoolExecutor(12) as threads:
            found = threads.map(lambda logits: client.map(logits, "sparsemax"), given)
            assert [result.probabilities.tobytes() for result in found] == wanted


def test_tasks_share_a_client() -> None:
    async def main() -> list[int]:
        async with AsyncClient(shared_server().url, connections=4) as client:
            calls = (client.map(logits, "softmax") for logits in batches(32))
            return [result.classes for result in await asyncio.gather(*calls)]

    assert asyncio.run(main()) == [logits.shape[1] for logits in batches(32)]
