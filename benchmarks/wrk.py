"""Load by wrk, a process of its own, that sends one request over and over."""

import json
import resource
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PATIENCE = "60s"
"""After how long without an answer a request counts as failed."""

SCRIPT = """
local file = io.open({body}, "rb")
wrk.method = "POST"
wrk.body = file:read("*a")
file:close()
{headers}
function done(summary, latency, requests)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  io.write(string.format(
    '\\n{{"requests": %d, "microseconds": %d, "failed": %d, "p50": %f, "p99": %f}}\\n',
    summary.requests, summary.duration, failed, latency:percentile(50), latency:percentile(99)))
end
"""
"""Without a function `request`, the request is made once and sent as it is."""


@dataclass(frozen=True)
class Request:
    """What is sent.

    Attributes:
        url: where to.
        body: the whole of it.
        headers: beside Host and Content-Length.
    """

    url: str
    body: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Rate:
    """What a load came to.

    Attributes:
        per_second: answers a second.
        p50: the median of the time to an answer (seconds).
        p99: its 99th percentile (seconds).
        load_share: how much of one processor wrk took.
    """

    per_second: float
    p50: float
    p99: float
    load_share: float


def load(request: Request, connections: int, seconds: int) -> Rate:
    """Sends a request over so many connections, each as soon as it has its answer.

    Raises:
        AssertionError: an answer failed, or none came.
    """
    with tempfile.TemporaryDirectory() as folder:
        body, script = Path(folder, "body"), Path(folder, "request.lua")
        body.write_bytes(request.body)
        lines = [
            f"wrk.headers[{json.dumps(k)}] = {json.dumps(v)}" for k, v in request.headers.items()
        ]
        script.write_text(SCRIPT.format(body=json.dumps(str(body)), headers="\n".join(lines)))
        flags = ("-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", PATIENCE)
        before = _used()
        printed = subprocess.run(
            ["wrk", *flags, "-s", str(script), request.url],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        used = _used() - before
    found = json.loads(printed.strip().rpartition("\n")[2])
    assert found["requests"] > 0, printed
    assert found["failed"] == 0, printed
    took = found["microseconds"] / 1e6
    p50, p99 = found["p50"] / 1e6, found["p99"] / 1e6
    return Rate(found["requests"] / took, p50, p99, used / took)


def _used() -> float:
    """Processor time of the children that have ended (seconds)."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
