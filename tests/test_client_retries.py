"""When probmap_client tries again, how long it waits, and what it says when it gives up."""

import math
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from client_faces import FACES, opened
from probmap_client import (
    DeadlineExceeded,
    Disconnected,
    InvalidAnswer,
    MapResult,
    Overloaded,
    ProbmapError,
    Refused,
    Retries,
    TimedOut,
    Unauthorized,
)
from probmap_client.errors import refusal
from probmap_client.reply import Reply
from scripted_server import ANSWER, OK, RESET, ScriptedServer, Step, scripted

each_face = pytest.mark.parametrize("face", FACES)

QUICK = Retries(first_wait=0.02)


def ask(face: str, server: ScriptedServer, **options: Any) -> MapResult:
    """A result of the scripted server."""
    with opened(face, server.url, **{"retries": QUICK, "timeout": 60, **options}) as client:
        return client.map([[0.0, 1.0]], "softmax")


def refused(kind: type[ProbmapError], face: str, server: ScriptedServer, **options: Any) -> Any:
    """The exception of a call that fails."""
    with pytest.raises(kind) as caught:
        ask(face, server, **options)
    assert type(caught.value) is kind
    return caught.value


@each_face
@pytest.mark.parametrize("status", [429, 503])
def test_no_room_is_tried_again_after_the_time_the_server_says(face: str, status: int) -> None:
    with scripted(Step(status, headers={"Retry-After": "1"}), OK) as server:
        assert ask(face, server).probabilities.tolist() == [[0.25, 0.75]]
    assert 1 <= server.waits()[0] < Retries().longest_wait
    assert server.seen[0].body == server.seen[1].body


def test_a_retry_after_may_be_a_date() -> None:
    def told(text: str) -> float | None:
        return refusal(Reply(503, {"retry-after": text}, bytearray())).retry_after

    now = datetime.now(UTC)
    later, earlier = (
        format_datetime(now + timedelta(hours=hours), usegmt=True) for hours in (1, -1)
    )
    assert told(later) == pytest.approx(3600, abs=60)
    assert (told(earlier), told("2.5"), told("-1"), told("soon")) == (0, 2.5, 0, None)


@each_face
def test_a_retry_after_is_no_longer_than_the_longest_wait(face: str) -> None:
    with scripted(Step(429, headers={"Retry-After": "3600"}), OK) as server:
        ask(face, server, retries=Retries(longest_wait=0.2))
    assert 0.2 <= server.waits()[0] < 60


@each_face
def test_without_room_to_the_end_the_last_refusal_is_raised(face: str) -> None:
    with scripted(Step(429)) as server:
        error = refused(Overloaded, face, server)
    assert (len(server.seen), error.status, error.code) == (4, 429, "scripted_429")
    assert error.detail == "as the test wants it"


@each_face
@pytest.mark.parametrize("keeps", [0.0, 0.5], ids=["before", "within"])
def test_a_lost_connection_is_tried_again(face: str, keeps: float) -> None:
    with scripted(Step(keeps=keeps), OK) as server:
        assert ask(face, server).probabilities.tolist() == [[0.25, 0.75]]
    assert [seen.connection for seen in server.seen] == [1, 2]


@each_face
def test_a_connection_lost_at_every_try_is_told(face: str) -> None:
    with scripted(RESET) as server:
        error = refused(Disconnected, face, server)
    assert len(server.seen) == QUICK.tries
    assert isinstance(error, ConnectionError)


@each_face
def test_a_server_that_is_not_there_is_told(face: str) -> None:
    with scripted() as server:
        pass
    refused(Disconnected, face, server)


@each_face
@pytest.mark.parametrize("status", [400, 404, 413, 422, 500, 502, 507])
def test_a_refusal_is_not_tried_again(face: str, status: int) -> None:
    with scripted(Step(status), OK) as server:
        error = refused(Refused, face, server)
    assert (len(server.seen), error.status, error.code) == (1, status, f"scripted_{status}")


@each_face
@pytest.mark.parametrize(
    ("status", "kind"), [(401, Unauthorized), (403, Unauthorized), (504, DeadlineExceeded)]
)
def test_kinds_of_refusals_have_exceptions(face: str, status: int, kind: type[Refused]) -> None:
    with scripted(Step(status), OK) as server:
        error = refused(kind, face, server)
    assert len(server.seen) == 1
    assert isinstance(error, TimeoutError) == (kind is DeadlineExceeded)


@each_face
def test_an_answer_that_takes_too_long_is_not_tried_again(face: str) -> None:
    with scripted(Step(seconds=30), OK) as server:
        started = time.monotonic()
        error = refused(TimedOut, face, server, timeout=0.7)
        assert 0.7 <= time.monotonic() - started < 20
    assert len(server.seen) == 1
    assert isinstance(error, TimeoutError)


@each_face
def test_no_try_begins_after_the_time_is_over(face: str) -> None:
    with scripted(Step(503, headers={"Retry-After": "60"})) as server:
        started = time.monotonic()
        refused(Overloaded, face, server, timeout=20, retries=Retries(longest_wait=60))
        assert time.monotonic() - started < 20
    assert len(server.seen) == 1


@each_face
def test_the_server_is_told_how_much_time_is_left(face: str) -> None:
    with scripted(Step(503, seconds=0.3), OK) as server:
        ask(face, server, timeout=60)
    first, second = (int(seen.headers["x-request-timeout-ms"]) for seen in server.seen)
    assert 30_000 < first <= 60_000
    assert 0 < second <= first - 300


@each_face
def test_a_call_may_have_a_time_of_its_own_or_none(face: str) -> None:
    with scripted() as server, opened(face, server.url, timeout=60) as client:
        client.map([0.0], "softmax", timeout=20)
        client.map([0.0], "softmax", timeout=math.inf)
    assert 0 < int(server.seen[0].headers["x-request-timeout-ms"]) <= 20_000
    assert "x-request-timeout-ms" not in server.seen[1].headers


@each_face
@pytest.mark.parametrize(
    "step",
    [
        Step(headers={"Content-Type": "text/html"}),
        Step(body=b"<html>"),
        Step(body=ANSWER[:-1]),
        Step(body=ANSWER.replace(b"answer", b"anwser")),
        Step(body=ANSWER.replace(b"F64", b"F65")),
    ],
    ids=["another type", "no length", "cut off", "no answer", "no dtype"],
)
def test_what_is_no_answer_of_this_service_is_told(face: str, step: Step) -> None:
    with scripted(step) as server:
        refused(InvalidAnswer, face, server)
    assert len(server.seen) == 1


@each_face
def test_an_error_of_something_between_is_told_in_its_words(face: str) -> None:
    page = b"<h1>Bad gateway</h1>\n" * 200
    with scripted(Step(502, body=page)) as server:
        error = refused(Refused, face, server)
    assert error.code == "http_502"
    assert error.detail.startswith("the server answered 502: <h1>Bad gateway</h1>")
    assert len(error.detail) < 300


def test_waits_double_are_scattered_and_end() -> None:
    retries = Retries(tries=4, first_wait=0.1, longest_wait=0.35)
    lost = Disconnected("lost")
    assert [retries.wait(lost, tried, 1.0) for tried in (1, 2, 3, 4)] == [0.1, 0.2, 0.35, None]
    assert retries.wait(lost, 1, 0.0) == 0.05
    assert retries.wait(TimedOut("late"), 1, 0.5) is None
    assert Retries(tries=1).wait(lost, 1, 0.5) is None
    busy = Overloaded("busy", code="overloaded", status=429, retry_after=0.2)
    assert retries.wait(busy, 1, 1.0) == pytest.approx(0.3)
