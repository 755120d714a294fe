"""`probmap serve --uds PATH`: the same service on a Unix socket, as well or instead."""

import json
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from safetensors_bodies import MEDIA_TYPE, answered, body, random_logits
from server import ROOT, START_SECONDS, RunningServer, running_server

REQUEST = {"logits": [0, 0.5, 1], "mapping": "sparsemax"}
ANSWER = [[0.0, 0.25, 0.75]]

LISTENS = "0A"
"""The state of a listening socket in /proc/net/tcp."""


@pytest.fixture
def path() -> Iterator[Path]:
    """A path short enough for a socket, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="probmap-") as folder:
        yield Path(folder) / "probmap.sock"


def client_of(path: Path) -> httpx.Client:
    transport = httpx.HTTPTransport(uds=str(path))
    return httpx.Client(transport=transport, base_url="http://localhost", timeout=60)


def is_ready(server: RunningServer, path: Path) -> bool:
    # httpx leaves a socket open when nobody listens, so the banner has to be there first.
    if f"{path}\n" not in server.output:
        return False
    with client_of(path) as client:
        return client.get("/v2/health/ready").status_code == 200


@contextmanager
def socket_server(path: Path) -> Iterator[RunningServer]:
    """A server that listens on the Unix socket alone."""
    with tempfile.NamedTemporaryFile(prefix="probmap-", suffix=".log") as log:
        command = [sys.executable, "-m", "service.cli", "serve", "--no-tcp", "--uds", str(path)]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT
        )
        server = RunningServer("", process, log)
        try:
            deadline = time.monotonic() + START_SECONDS
            while not is_ready(server, path):
                assert process.poll() is None, server.output
                assert time.monotonic() < deadline, server.output
                time.sleep(0.05)
            yield server
        finally:
            server.stop()


def refused(*flags: str) -> tuple[int, str]:
    """The exit code and the complaint of a server that does not start."""
    done = subprocess.run(
        [sys.executable, "-m", "service.cli", "serve", "--port", "0", *flags],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=START_SECONDS,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


def tcp_ports(process: int) -> list[int]:
    """The TCP ports at which a process listens."""
    links = (entry.readlink() for entry in Path(f"/proc/{process}/fd").iterdir())
    inodes = {str(link)[8:-1] for link in links if str(link).startswith("socket:[")}
    lines = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    found = [line for line in lines if line[3] == LISTENS and line[9] in inodes]
    return [int(line[1].rpartition(":")[2], 16) for line in found]


def test_a_server_listens_on_the_socket_as_well(path: Path) -> None:
    with running_server("--uds", str(path)) as server, client_of(path) as client:
        assert client.post("/v1/map", json=REQUEST).json()["probabilities"] == ANSWER
        over_tcp = httpx.post(f"{server.url}/v1/map", json=REQUEST)
        assert over_tcp.json()["probabilities"] == ANSWER
        assert tcp_ports(server.process.pid) == [server.port]
        assert re.search(rf"socket +{path}\n", server.output)
        mode = path.lstat().st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o660
        assert server.stop() == 0
    assert not path.exists()


def test_a_server_listens_on_the_socket_alone(path: Path) -> None:
    with socket_server(path) as server, client_of(path) as client:
        assert client.post("/v1/map", json=REQUEST).json()["probabilities"] == ANSWER
        logits = random_logits(4, 5000)
        made = body({"logits": logits}, mapping="softmax")
        found = answered(client.post("/v1/map", content=made, headers={"content-type": MEDIA_TYPE}))
        assert found["probabilities"].shape == (4, 5000)
        assert client.get("/nope").status_code == 404
        assert tcp_ports(server.process.pid) == []
        assert str(path) in server.output
        assert "http://127.0.0.1" not in server.output
        assert server.stop() == 0
    assert not path.exists()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_reaches_it_as_the_banner_says(path: Path) -> None:
    with socket_server(path) as server:
        line = re.search(r"try +(curl .*)\n", server.output)
        assert line is not None
        done = subprocess.run(
            ["sh", "-c", line[1]], capture_output=True, text=True, timeout=60, check=True
        )
    assert json.loads(done.stdout)["rows"] == 1


def test_what_a_killed_server_left_is_replaced(path: Path) -> None:
    with socket_server(path) as server:
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        assert path.exists()
        with socket_server(path) as another:
            assert another.stop() == 0
    assert not path.exists()


def test_a_socket_at_which_another_listens_is_let_be(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(1)
        code, complaint = refused("--uds", str(path))
        assert code == 2
        assert "another server listens" in complaint
        assert path.exists()


def test_a_file_that_is_no_socket_is_let_be(path: Path) -> None:
    path.write_text("mine")
    code, complaint = refused("--uds", str(path))
    assert (code, path.read_text()) == (2, "mine")
    assert "is no socket" in complaint


def test_a_file_that_came_in_the_sockets_place_is_let_be(path: Path) -> None:
    with socket_server(path) as server:
        path.unlink()
        path.write_text("mine")
        assert server.stop() == 0
    assert path.read_text() == "mine"


def test_a_path_that_cannot_be_is_named(path: Path) -> None:
    code, complaint = refused("--uds", str(path.parent / "none" / "probmap.sock"))
    assert code == 1
    assert "none/probmap.sock: No such file or directory" in complaint
    code, complaint = refused("--uds", str(path.parent / ("x" * 200)))
    assert code == 2
    assert "takes a shorter path" in complaint


def test_to_listen_nowhere_is_refused() -> None:
    code, complaint = refused("--no-tcp")
    assert code == 2
    assert "--uds" in complaint


def test_a_server_that_cannot_have_its_port_leaves_no_socket(path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, complaint = refused("--port", str(taken.getsockname()[1]), "--uds", str(path))
    assert code != 0
    assert "--port" in complaint
    assert not path.exists()
