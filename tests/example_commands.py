"""The commands of examples/README.md, built once and run against a server of the test's."""

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest

from server import ROOT

EXAMPLES = ROOT / "examples"
README = (EXAMPLES / "README.md").read_text(encoding="utf-8")
COMMANDS = dict(re.findall(r"^\| \[`([^`]+)`\].*\| `([^`]+)` \|$", README, re.M))
"""The command of each example, by its file."""

ADDRESS = "127.0.0.1:8000"
"""The server that they name."""

RUN_SECONDS = 120
BUILD_SECONDS = 600


SPARSEMAX = [[0, 0.25, 0.75], [0.25, 0, 0.75]]
"""Of (0, 1/2, 1) at T = 1 and (1, −∞, 3) at T = 4: z − τ with τ = 1/4 and τ = 0."""


@dataclass(frozen=True)
class Done:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Example:
    """An example that is ready to be run."""

    command: list[str]

    def run(self, url: str, *arguments: str) -> Done:
        """Runs it with another server than it names, and with these arguments behind."""
        told = self.told(url)
        done = subprocess.run(
            [*told, *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
            check=False,
            env=environment(),
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def told(self, url: str) -> list[str]:
        """The command with another server than it names."""
        address = url.removeprefix("http://")
        return [part.replace(ADDRESS, address) for part in self.command]


def environment() -> dict[str, str]:
    """That of the tests, but no proxy stands between an example and its server."""
    proxies = {"http_proxy", "all_proxy", "https_proxy"}
    return {name: value for name, value in os.environ.items() if name.lower() not in proxies}


def built(file: str, folder: Path) -> Example:
    """An example, compiled into a folder where it has to be; skips where its tool is missing."""
    # In this order: the interpreter may itself lie in /tmp.
    whole = COMMANDS[file].replace("/tmp/", f"{folder}/")
    whole = whole.replace(".venv/bin/python", sys.executable)
    *builds, run = (shlex.split(part) for part in whole.split("&&"))
    tool = (builds or [run])[0][0]
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    for build in builds:
        subprocess.run(build, cwd=ROOT, check=True, timeout=BUILD_SECONDS)
    return Example(run)


@contextmanager
def answering(status: int, body: bytes, **headers: str) -> Iterator[str]:
    """The URL of a server that answers everything in the same way."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(10)


def detail_of(response: httpx.Response) -> str:
    assert response.status_code >= 400
    return str(response.json()["detail"])


@contextmanager
def nobody() -> Iterator[str]:
    """An address at which nothing listens: the port is taken, but not listened on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def assert_refused(done: Done, *parts: str) -> None:
    """It said so, on stderr, and printed no numbers."""
    assert done.code == 1, done
    assert done.out == "", done
    assert done.err.startswith("probmap: "), done
    for part in parts:
        assert part in done.err, done
