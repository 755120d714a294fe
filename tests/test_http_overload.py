"""A server asked for four times what it can answer: nobody is forgotten, nothing is kept."""

import asyncio
import time

import numpy as np
import pytest

from load import Answer, request_bytes, steady_callers, waiting_callers
from server import RunningServer, metric, running_server

pytestmark = pytest.mark.alone

MAX_ROWS = 32
OVERLOAD = 4
SECONDS = 10.0


def load(server: RunningServer) -> tuple[list[Answer], list[Answer]]:
    """The answers at the server's own pace, and then at four times that for a while."""
    row = np.random.default_rng(0).standard_normal(300).round(3).tolist()
    request = request_bytes("/v1/map", {"logits": [row], "mapping": "perturb_max"})
    peak = asyncio.run(waiting_callers(server.port, request, MAX_ROWS, 4.0))
    pace = len(peak) / max(answer.at for answer in peak)
    return peak, asyncio.run(steady_callers(server.port, request, OVERLOAD * pace, SECONDS))


def test_every_request_is_answered_and_memory_is_given_back() -> None:
    with running_server("--max-inflight-rows", str(MAX_ROWS)) as server:
        load(server)
        size = server.resident_bytes()
        peak, overloaded = load(server)
        assert {answer.status for answer in peak} == {200}
        assert {answer.status for answer in overloaded} == {200, 429}
        good = sum(answer.status == 200 for answer in overloaded)
        # Half of the peak, whatever else the machine does; the goal of 80 % is a benchmark's.
        assert good / SECONDS > 0.5 * len(peak) / max(answer.at for answer in peak)
        # Who is let in waits for no more than what the server may hold, at the server's pace.
        pace = good / SECONDS
        accepted = [answer.seconds for answer in overloaded if answer.status == 200]
        assert np.quantile(accepted, 0.99) < 5 * MAX_ROWS / pace
        # A refusal takes next to nothing of anybody's time.
        refusals = [answer.seconds for answer in overloaded if answer.status == 429]
        assert np.median(refusals) < 0.25
        time.sleep(1)
        assert abs(server.resident_bytes() - size) < 0.1 * size
        assert metric(server, "probmap_inflight_rows") == 0
        assert metric(server, "probmap_inflight_bytes") == 0
        assert metric(server, "probmap_rejected_total", reason="rows") >= len(refusals)
