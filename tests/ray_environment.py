"""Ray for tests: small, with nothing to look up, and gone when they end."""

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from server import ROOT
from waiting import until

START_SECONDS = 90

ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}",
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Where /dev/shm is small, Ray would refuse the disk.
    "RAY_OBJECT_STORE_ALLOW_SLOW_STORAGE": "1",
    "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "service.lost_answers:middlewares",
}

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None,
    reason="Ray is not installed: it has no build for this platform or this Python",
)


@contextmanager
def ray_on_this_machine(*arguments: Path) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    """The process that started Ray, once it is ready, and what it says; all of it ends after."""
    with tempfile.NamedTemporaryFile(prefix="probmap-ray-", suffix=".log") as log:
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "tests" / "ray_cluster.py"), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env=ENVIRONMENT,
        )
        said = Path(log.name)
        try:
            until(
                lambda: "ready at" in said.read_text() or process.poll() is not None, START_SECONDS
            )
            assert process.poll() is None, said.read_text()
            yield process, log
        finally:
            started = {*descendants(process.pid)}
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for pid in started:
                if "ray" in command_of(pid):
                    os.kill(pid, signal.SIGKILL)


def descendants(pid: int) -> Iterator[int]:
    """The processes that a process has started, those that these have started, and so on."""
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            started = [int(text) for text in children.read_text().split()]
        except OSError:
            continue
        for child in started:
            yield child
            yield from descendants(child)


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
