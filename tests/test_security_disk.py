"""The server writes no file, whatever it is asked."""

from pathlib import Path

import httpx
import pytest

from oip_bodies import binary, body, logits, rows
from server import ROOT, RunningServer, running_server
from watched_files import WAYS_TO_WRITE, WRITES, watch

PROGRAM = (str(ROOT / "tests" / "watched_files.py"),)


def asked(server: RunningServer) -> list[int]:
    """The statuses of requests of every kind."""
    content, headers = body(logits(rows(8, 50_000)), **binary("probabilities"))
    line = b'{"logits": [1, 2, 3], "mapping": "sparsemax"}\n'
    with httpx.Client(base_url=server.url, timeout=60) as client:
        answers = [
            client.post("/v1/map", json={"logits": [[1, 2, 3]], "mapping": "softmax"}),
            client.post("/v1/map", json={"logits": [[1] * 50_000] * 4, "mapping": "entmax"}),
            client.post("/v1/map", content=b"{"),
            client.post("/v2/models/softmax/infer", content=content, headers=headers),
            client.post("/v1/stream", content=100 * line),
            client.get("/metrics"),
            client.get("/docs"),
            client.get("/"),
        ]
    return [answer.status_code for answer in answers]


def test_nothing_is_written_to_disk(tmp_path: Path) -> None:
    where = {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path), "HOME": str(tmp_path)}
    with running_server(program=PROGRAM, PYTHONDONTWRITEBYTECODE="1", **where) as server:
        assert asked(server) == [200, 200, 400, 200, 200, 200, 200, 200]
        server.stop()
        written = [line for line in server.output.splitlines() if line.startswith(WRITES)]
    assert written == []
    assert [*tmp_path.iterdir()] == []


def test_a_file_that_is_written_would_be_seen(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    watch("open", (str(tmp_path / "new"), "w", WAYS_TO_WRITE))
    watch("open", (str(tmp_path / "old"), "r", 0))
    watch("os.mkdir", (str(tmp_path), 511, -1))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in lines] == ["open", "os.mkdir"]
