"""A server asked for four times what it can answer: nobody is forgotten, nothing is kept."""

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest

from load import Answer, request_bytes, steady_callers, waiting_callers
from server import RunningServer, metric, running_server

pytestmark = pytest.mark.alone

MAX_ROWS = 32
OVERLOAD = 4
SECONDS = 6.0


def load(server: RunningServer) -> tuple[list[Answer], list[Answer]]:
    """The answers at the server's own pace, and then at four times that for a while."""
    row = np.random.default_rng(0).standard_normal(300).round(3).tolist()
    request = request_bytes("/v1/map", {"logits": [row], "mapping": "perturb_max"})
    peak = asyncio.run(waiting_callers(server.port, request, MAX_ROWS, 4.0))
    pace = len(peak) / max(answer.at for answer in peak)
    return peak, asyncio.run(steady_callers(server.port, request, OVERLOAD * pace, SECONDS))


@contextmanager
def rows_held(server: RunningServer) -> Iterator[list[float]]:
    """The rows that the server says it holds, looked at again and again."""
    seen: list[float] = []
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.1):
            seen.append(metric(server, "probmap_inflight_rows"))

    with ThreadPoolExecutor(1) as looking:
        looked = looking.submit(look)
        yield seen
        over.set()
        looked.result()


def test_every_request_is_answered_and_memory_is_given_back() -> None:
    # How many, and how fast, make bench ONLY=engine tells.
    with running_server("--max-inflight-rows", str(MAX_ROWS)) as server:
        load(server)
        # What it keeps for a while is gone after two seconds without work.
        time.sleep(2)
        size = server.resident_bytes()
        with rows_held(server) as held:
            peak, overloaded = load(server)
        assert {answer.status for answer in peak} == {200}
        assert {answer.status for answer in overloaded} == {200, 429}
        # Who is let in waits for no more rows than the server may hold.
        assert 0 < max(held) <= MAX_ROWS
        refusals = [answer for answer in overloaded if answer.status == 429]
        time.sleep(2)
        assert abs(server.resident_bytes() - size) < 0.1 * size
        assert metric(server, "probmap_inflight_rows") == 0
        assert metric(server, "probmap_inflight_bytes") == 0
        assert metric(server, "probmap_rejected_total", reason="rows") >= len(refusals)
