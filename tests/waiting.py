"""Waits until something comes true."""

import time
from collections.abc import Callable


def until(claim: Callable[[], object], seconds: float = 30.0) -> float:
    """Waits until a claim holds; returns how long that took (seconds)."""
    started = time.monotonic()
    while not claim():
        assert time.monotonic() - started < seconds, "it does not come true"
        time.sleep(0.02)
    return time.monotonic() - started
