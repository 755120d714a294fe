"""Settings of the whole suite."""

import os
import signal
import sys
import threading
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# Idle OpenMP threads sleep rather than spin: where tests, the servers they start and other work
# share few cores, spinning takes most of the time. Must stand before the first import of torch.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Python ends on SIGTERM without a word to `atexit`, and the servers that tests share would be left.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGTERM, lambda number, frame: pytest.exit("told to stop", 128 + number))

settings.register_profile(
    "fixed",
    derandomize=True,
    max_examples=300,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("fixed")


@pytest.fixture(scope="module", autouse=True)
def browser_ends_with_its_module() -> Iterator[None]:
    """Where a browser was used, the next module can run an event loop of its own again."""
    yield
    if "browser_page" in sys.modules:
        sys.modules["browser_page"].close_browser()
