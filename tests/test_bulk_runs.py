"""`probmap map` on files, when something ends it: killed, interrupted, no room, no such file."""

import json
import os
import pty
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import service.bulk.map_file
from bulk_files import probmap, succeeded, write_logits
from server import ROOT
from service.bulk.evaluator import Answered, Here
from service.bulk.piece import Piece
from service.bulk.spool import Spool
from waiting import until

RANDOM = np.random.default_rng(21)
LOGITS = [row.astype(np.float32) for row in RANDOM.normal(size=(60, 6))]
SECONDS = 120


class Stopped(Here):
    """Answers in this process until it has answered so many pieces."""

    pieces = 3
    error: BaseException = KeyboardInterrupt()

    def answers(self, pieces: Iterator[Piece]) -> Iterator[Answered]:
        for place, answered in enumerate(super().answers(pieces)):
            if place == Stopped.pieces:
                raise Stopped.error
            yield answered


class Counted(Here):
    """Counts the pieces it answers."""

    count = 0

    def answers(self, pieces: Iterator[Piece]) -> Iterator[Answered]:
        for answered in super().answers(pieces):
            Counted.count += 1
            yield answered


def logits_file(folder: Path, suffix: str = "npy") -> Path:
    path = folder / f"logits.{suffix}"
    write_logits(path, LOGITS, None)
    return path


ASKED = ["--mapping", "sparsemax", "--outputs", "probabilities,support", "--batch-rows", "7"]


@pytest.mark.parametrize("written", ["npz", "safetensors", "arrow", "arrows", "parquet", "jsonl"])
@pytest.mark.parametrize("read", ["npy", "parquet"])
def test_an_interrupted_run_goes_on_where_it_stopped(
    read: str, written: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, output = logits_file(tmp_path, read), tmp_path / f"answers.{written}"
    arguments = ["--input", source, "--output", output, *ASKED]
    succeeded(*arguments)
    whole = output.read_bytes()
    output.unlink()
    with monkeypatch.context() as patch:
        patch.setattr("service.map_command.Here", Stopped)
        run = probmap(*arguments)
    assert run.code == 130
    assert "interrupted" in run.err
    assert "answers" in run.err
    assert not output.exists()
    state = json.loads((tmp_path / f"answers.{written}.partial" / "state.json").read_text())
    assert state["done"] == Stopped.pieces
    # What a killed process wrote after the last note counts for nothing.
    for name in state["sizes"]:
        with (tmp_path / f"answers.{written}.partial" / name).open("ab") as file:
            file.write(b"half a row")
    monkeypatch.setattr("service.map_command.Here", Counted)
    Counted.count = 0
    succeeded(*arguments)
    assert output.read_bytes() == whole
    assert Counted.count == 9 - Stopped.pieces if read == "npy" else Counted.count > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([source.name, output.name])


def test_lines_go_on_where_they_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, output = tmp_path / "requests.jsonl", tmp_path / "answers.jsonl"
    lines = [json.dumps({"id": line, "logits": [line % 5, 0.5, 1]}) for line in range(500)]
    lines[100] = lines[400] = "broken"
    source.write_text("\n".join(lines))
    arguments = ["--input", source, "--output", output, "--mapping", "entmax"]
    assert probmap(*arguments).code == 3
    whole = output.read_bytes()
    output.unlink()
    with monkeypatch.context() as patch:
        patch.setattr("service.map_command.Here", Stopped)
        assert probmap(*arguments).code == 130
    # The bad line of the first part is not forgotten, nor is any answered twice.
    assert probmap(*arguments).code == 3
    assert output.read_bytes() == whole
    assert [json.loads(line)["index"] for line in whole.splitlines()] == list(range(500))


def test_only_the_same_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, output = logits_file(tmp_path), tmp_path / "answers.npz"
    arguments = ["--input", source, "--output", output, *ASKED]
    with monkeypatch.context() as patch:
        patch.setattr("service.map_command.Here", Stopped)
        assert probmap(*arguments).code == 130
    other = probmap(*arguments, "--temperature", "2")
    assert other.code == 2
    assert "--restart" in other.err
    os.utime(source, (1, 1))
    assert probmap(*arguments).code == 2
    assert not output.exists()
    succeeded(*arguments, "--restart")
    assert np.load(output)["probabilities"].shape == (60, 6)


def test_two_runs_do_not_write_the_same_file(tmp_path: Path) -> None:
    source, output = logits_file(tmp_path), tmp_path / "answers.npz"
    with Spool(output, {}, restart=False):
        run = probmap("--input", source, "--output", output)
    assert run.code == 2
    assert "another run" in run.err


def test_what_was_there_stays_until_the_new_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, output = logits_file(tmp_path), tmp_path / "answers.npz"
    output.write_text("old")
    arguments = ["--input", source, "--output", output, *ASKED]
    with monkeypatch.context() as patch:
        patch.setattr("service.map_command.Here", Stopped)
        assert probmap(*arguments).code == 130
    assert output.read_text() == "old"
    succeeded(*arguments)
    assert np.load(output)["probabilities"].shape == (60, 6)


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "service.cli", "map", *map(str, arguments)]


def slow_run(folder: Path) -> tuple[list[object], Path]:
    """The arguments of a run that takes its time, and its output."""
    source, output = folder / "logits.npy", folder / "answers.jsonl"
    np.save(source, RANDOM.normal(size=(6000, 40)) * 3)
    flags = ["--mapping", "perturb_max", "--batch-rows", "25", "--device", "cpu"]
    return ["--input", source, "--output", output, *flags], output


def pieces_done(output: Path) -> int:
    """How much of a run is done and kept (a count)."""
    state = output.with_name(f"{output.name}.partial") / "state.json"
    return int(json.loads(state.read_text())["done"]) if state.exists() else 0


def ended_by(number: signal.Signals, arguments: list[object], output: Path) -> tuple[int, bytes]:
    """Ends a run by a signal when it has done something; its exit code and what it said."""
    before = pieces_done(output)
    process = subprocess.Popen(
        command(*arguments), cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    try:
        until(lambda: pieces_done(output) > before or process.poll() is not None, SECONDS)
        process.send_signal(number)
        _, said = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
        process.wait()
    assert not output.exists()
    return process.returncode, said


def test_a_killed_run_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    arguments, output = slow_run(tmp_path)
    code, said = ended_by(signal.SIGKILL, arguments, output)
    assert (code, said) == (-signal.SIGKILL, b"")
    assert pieces_done(output) > 0
    code, said = ended_by(signal.SIGINT, arguments, output)
    assert code == 130
    assert b"Traceback" not in said
    assert b"kept" in said
    succeeded(*arguments)
    resumed = output.read_bytes()
    succeeded(*arguments)
    assert output.read_bytes() == resumed
    assert len(resumed.splitlines()) == 6000


def test_a_terminal_shows_rows_and_the_time_left(tmp_path: Path) -> None:
    source, output = logits_file(tmp_path), tmp_path / "answers.npz"
    main, side = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "150"}
    process = subprocess.Popen(
        command("--input", source, "--output", output, *ASKED),
        cwd=ROOT,
        stderr=side,
        stdout=subprocess.DEVNULL,
        env=environment,
    )
    os.close(side)
    shown = b""
    try:
        while part := os.read(main, 1 << 16):
            shown += part
    except OSError:
        # A pseudoterminal whose other side is closed ends in an error.
        pass
    finally:
        os.close(main)
    assert process.wait(SECONDS) == 0
    assert b"60 rows" in shown
    assert b"rows/s" in shown
    assert b"100%" in shown


def test_a_full_disk_keeps_what_was_done(tmp_path: Path) -> None:
    source, output = tmp_path / "logits.npy", tmp_path / "answers.npz"
    np.save(source, RANDOM.normal(size=(3000, 40)))
    arguments = ["--input", source, "--output", output, "--batch-rows", "100"]
    succeeded(*arguments)
    whole = output.read_bytes()
    output.unlink()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # A file that may not grow ends a write as a full disk does.
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, limits[1]))
    try:
        run = probmap(*arguments)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert run.code == 1
    assert "kept" in run.err
    assert not output.exists()
    succeeded(*arguments)
    assert output.read_bytes() == whole


def test_no_room_for_the_whole_file_at_the_end_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, output = logits_file(tmp_path), tmp_path / "answers.npz"
    arguments = ["--input", source, "--output", output, *ASKED]

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "answers.npz")

    with monkeypatch.context() as patch:
        patch.setattr("service.bulk.tensor_writer.write_npz", full)
        run = probmap(*arguments)
    assert run.code == 1
    assert "No space left on device" in run.err
    assert "60 rows are kept" in run.err
    monkeypatch.setattr("service.map_command.Here", Counted)
    Counted.count = 0
    succeeded(*arguments)
    assert Counted.count == 0
    assert np.load(output)["probabilities"].shape == (60, 6)


def test_a_fault_of_our_own_is_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, output = logits_file(tmp_path), tmp_path / "answers.npz"

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(service.bulk.map_file, "writer_of", broken)
    with pytest.raises(ZeroDivisionError):
        probmap("--input", source, "--output", output, *ASKED)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--input", "absent.npy", "--output", "out.npz"], 1, "absent.npy: No such file"),
        (["--input", "absent.jsonl", "--output", "out.npz"], 1, "absent.jsonl: No such file"),
        (["--input", "absent.parquet", "--output", "out.npz"], 1, "absent.parquet"),
        (["--input", "good.npy", "--output", "absent/out.npz"], 1, "absent/out.npz.partial"),
        (["--input", "good.npy", "--output", "folder.npz"], 2, "is a folder"),
        (["--input", "good.npy", "--output", "out.csv"], 2, "--output should end in"),
        (["--input", "good.csv", "--output", "out.npz"], 2, "--input should end in"),
        (["--input", "text.npy", "--output", "out.npz"], 2, "not a whole .npy"),
        (["--input", "empty.npy", "--output", "out.npz"], 2, "not a whole .npy"),
        (["--input", "cut.npy", "--output", "out.npz"], 2, "not a whole .npy"),
        (["--input", "cube.npy", "--output", "out.npz"], 2, "rows × classes"),
        (["--input", "texts.npy", "--output", "out.npz"], 2, "floats or integers"),
        (["--input", "objects.npy", "--output", "out.npz"], 2, "not a whole .npy"),
        (["--input", "narrow.npy", "--output", "out.npz"], 2, "no class"),
        (["--input", "text.safetensors", "--output", "out.npz"], 2, "safetensors"),
        (["--input", "empty.safetensors", "--output", "out.npz"], 2, "safetensors"),
        (["--input", "text.arrow", "--output", "out.npz"], 2, "no Arrow file or stream"),
        (["--input", "text.parquet", "--output", "out.npz"], 2, "no Parquet file"),
        (["--input", "good.npy", "--output", "out.npy", "--outputs", "support"], 2, "one array"),
        (
            ["--input", "good.npy", "--output", "out.arrow", "--outputs", "jacobian"],
            2,
            "fits no column",
        ),
        (["--input", "good.npy", "--output", "out.npz", "--alpha", "2"], 2, "unknown field"),
        (
            ["--input", "good.npy", "--output", "out.npz", "--temperature", "1,2"],
            2,
            "2 values for 60 rows",
        ),
        (["--input", "good.parquet", "--output", "o.npz", "--temperature", "1,2"], 2, "a column"),
        (["--input", "good.npy", "--output", "out.npz", "--columns", "x"], 2, "--columns"),
        (["--input", "good.parquet", "--output", "o.npz", "--columns", "x"], 2, "no column 'x'"),
        (["--input", "good.npy", "--output", "out.npz", "--batch-rows", "0"], 2, "at least 1"),
        (["--input", "good.jsonl", "--output", "out.json"], 2, "requests"),
        (["--input", "good.jsonl"], 2, "--output"),
        (["--input", "good.npy", "--output", "out.npz", "--url", "nowhere"], 2, "no address"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_is_wrong_is_told_and_leaves_nothing(
    arguments: list[str],
    code: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for suffix in ("npy", "parquet", "jsonl"):
        write_logits(Path(f"good.{suffix}"), LOGITS, None)
    for suffix in ("npy", "safetensors", "arrow", "parquet"):
        Path(f"text.{suffix}").write_text("this is a text, and no numbers " * 9)
        Path(f"empty.{suffix}").touch()
    Path("cut.npy").write_bytes(Path("good.npy").read_bytes()[:-1])
    np.save("cube.npy", np.zeros((2, 2, 2)))
    np.save("texts.npy", np.array([["a", "b"]]))
    np.save("objects.npy", np.array([[{}]]), allow_pickle=True)
    np.save("narrow.npy", np.zeros((3, 0)))
    Path("folder.npz").mkdir()
    before = sorted(Path().iterdir())
    run = probmap(*arguments)
    assert run.code == code, run.err
    assert message in run.err
    assert run.out == ""
    assert sorted(Path().iterdir()) == before


def test_a_missing_package_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = logits_file(tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    run = probmap("--input", source, "--output", tmp_path / "out.arrow")
    assert run.code == 2
    assert "probmap[arrow]" in run.err


def test_the_help_tells_the_exit_codes() -> None:
    shown = " ".join(probmap("--help").out.split())
    for code in (
        "0 all rows",
        "1 a file cannot",
        "2 what was asked",
        "3 rows, or lines",
        "130 int",
    ):
        assert code in shown
