"""Starts a real server process on a free port, and stops it by its own process id."""

import atexit
import functools
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import httpx
from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).parent.parent
START_SECONDS = 60.0
STOP_SECONDS = 30.0


@dataclass
class RunningServer:
    """A server process.

    Attributes:
        url: where it listens, such as http://127.0.0.1:41234.
        process: the process; its `pid` is what to send signals to.
        output: everything it has printed and logged, so far.
    """

    url: str
    process: subprocess.Popen[bytes]
    output_file: IO[bytes]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def output(self) -> str:
        return Path(self.output_file.name).read_text()

    def resident_bytes(self) -> int:
        """The memory it occupies now."""
        return self._status_bytes("VmRSS")

    def peak_bytes(self) -> int:
        """The most memory that it has occupied since `forget_peak`."""
        return self._status_bytes("VmHWM")

    def forget_peak(self) -> None:
        """Lets the peak begin anew."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def _status_bytes(self, name: str) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        kilobytes = re.search(rf"{name}:\s+(\d+) kB", status)
        assert kilobytes is not None
        return int(kilobytes[1]) * 1024

    def stop(self) -> int:
        """Tells it to stop, waits, and returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise


@contextmanager
def running_server(
    *flags: str, program: Sequence[str] = ("-m", "service.cli"), **environment: str
) -> Iterator[RunningServer]:
    """A server with these flags of `probmap serve` and these environment variables.

    Args:
        flags: of `probmap serve`.
        program: what Python runs: the command line itself, or a script that changes it.
        environment: variables beside those of the tests.
    """
    with tempfile.NamedTemporaryFile(prefix="probmap-", suffix=".log") as log:
        process = subprocess.Popen(
            [sys.executable, *program, "serve", "--port", "0", *flags],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={**os.environ, **environment},
        )
        server = RunningServer("", process, log)
        try:
            server.url = _address(server)
            yield server
        finally:
            server.stop()


def faulty_server(*flags: str) -> AbstractContextManager[RunningServer]:
    """A server that has the mapping of tests/faults.py."""
    program = (str(ROOT / "tests" / "faults.py"),)
    return running_server(*flags, program=program, PYTHONPATH=f"{ROOT}:{ROOT / 'tests'}")


@functools.cache
def shared_server() -> RunningServer:
    """A server with the default settings, one for the whole test run."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(running_server())


@functools.cache
def shared_client() -> httpx.Client:
    """A client of the shared server."""
    client = httpx.Client(base_url=shared_server().url, timeout=120)
    atexit.register(client.close)
    return client


def metric(server: RunningServer, name: str, **labels: str) -> float:
    """A sample of /metrics, such as probmap_batch_rows_sum; summed over what is not named."""
    text = httpx.get(f"{server.url}/metrics").text
    families = list(text_string_to_metric_families(text))
    # A name that nothing has would be 0 for ever.
    assert any(name.startswith(family.name) for family in families), name
    found = [
        sample.value
        for family in families
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]
    return sum(found)


def post(path: str, body: object = None, **fields: object) -> httpx.Response:
    """Posts a body, or an object of these fields, to the shared server."""
    return shared_client().post(path, json={**fields} if body is None else body)


def map_logits(body: object = None, **fields: object) -> httpx.Response:
    """Posts to /v1/map of the shared server."""
    return post("/v1/map", body, **fields)


def _address(server: RunningServer) -> str:
    """The address in the banner, once the server is ready."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and server.process.poll() is None:
        found = re.search(r"https?://\S+:\d+", server.output)
        # Whose certificate it is, tests of that ask themselves.
        if found and httpx.get(f"{found[0]}/v2/health/ready", verify=False).status_code == 200:
            return found[0]
        time.sleep(0.05)
    raise AssertionError(f"the server did not start:\n{server.output}")
