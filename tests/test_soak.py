"""What the soak asks gets the answer it is due, and the soak sees what is wrong."""

import asyncio

import pytest

from load import Answer, Callers, Reply
from mixture import Ask, Kind, mixture
from server import shared_server
from soak import PLATEAU_SECONDS, Soak, faults_of, growth

KINDS = {kind.name: kind for kind in mixture()}


@pytest.mark.parametrize("name", KINDS)
def test_each_request_of_the_soak_gets_the_status_it_is_due(name: str) -> None:
    async def statuses() -> list[int]:
        callers = Callers(shared_server().port)
        found = [(await callers.call(ask.request)).status for ask in KINDS[name].asks]
        callers.close()
        return found

    assert asyncio.run(statuses()) == [ask.status for ask in KINDS[name].asks]


def soaked() -> Soak:
    """A soak that went well."""
    soak = Soak(shared_server(), memory=[300] * 12, at_rest=[280, 281])
    soak.answers["JSON"] = [Answer(200, 0.01, 1.0), Answer(422, 0.01, 2.0)]
    return soak


def test_a_soak_that_went_well_has_no_faults() -> None:
    assert not faults_of(soaked(), PLATEAU_SECONDS)


@pytest.mark.parametrize("status", [500, 503, 0])
def test_a_5xx_or_no_answer_is_a_fault(status: int) -> None:
    soak = soaked()
    soak.answers["JSON"].append(Answer(status, 0.01, 3.0))
    assert faults_of(soak, PLATEAU_SECONDS) == ["1 answers were a 5xx, or none"]


@pytest.mark.parametrize(
    ("status", "body", "faults"),
    [
        (200, b"same", []),
        (200, b"other", ["JSON: 1 answers differ from what the server says alone"]),
        (429, b"", ["JSON: 1 × 429 where 200 was due"]),
    ],
)
def test_an_answer_is_held_against_what_is_due(status: int, body: bytes, faults: list[str]) -> None:
    soak, ask = soaked(), Ask(b"")
    kind = Kind("JSON", (ask,), callers=1, pause=0.0)
    soak.compare(kind, ask, Reply(status, body), alone=Reply(200, b"same"))
    assert faults_of(soak, PLATEAU_SECONDS) == faults


@pytest.mark.parametrize(
    ("at_rest", "memory", "seconds", "faults"),
    [
        ([280, 320], [300] * 12, 30.0, ["memory grew"]),
        ([280, 280], [*range(300, 348, 4)], PLATEAU_SECONDS, ["memory grew"]),
        ([280, 280], [*range(300, 348, 4)], 30.0, []),
    ],
)
def test_memory_that_grows_is_a_fault(
    at_rest: list[int], memory: list[int], seconds: float, faults: list[str]
) -> None:
    soak = soaked()
    soak.at_rest, soak.memory = at_rest, memory
    assert faults_of(soak, seconds) == faults


def test_a_plateau_after_a_peak_is_no_growth() -> None:
    assert growth([300, 300, 300, 900, 300, 300, 300, 300, 300]) == 1
