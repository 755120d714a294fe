"""`probmap map --engine ray` on a real Ray: the answers of one file alone, whatever happens."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from bulk_files import read_answers, succeeded, write_logits
from ray_environment import ENVIRONMENT, command_of, descendants, needs_ray, ray_on_this_machine
from server import ROOT
from waiting import until

pytestmark = needs_ray

RANDOM = np.random.default_rng(31)
ASKED = ["--mapping", "entmax", "--outputs", "probabilities,support,entropy", "--batch-rows", "50"]
SLOW = ["--mapping", "perturb_max", "--noise", "logistic", "--batch-rows", "20"]
ACTOR = "ray::MapWorker(Map(FileMapper))"
TRIES = 4
SECONDS = 120


@dataclass
class Ray:
    """Ray on this machine, and how to map files on it."""

    process: subprocess.Popen[bytes]
    address: str
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        """Starts `probmap map --engine ray`."""
        process = subprocess.Popen(
            [sys.executable, "-m", "service.cli", "map", "--engine", "ray", *map(str, arguments)],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
            env={**ENVIRONMENT, "RAY_ADDRESS": self.address},
        )
        self.started.append(process)
        return process

    def actors(self) -> set[int]:
        """The processes of the actors that hold a device."""
        return {pid for pid in descendants(self.process.pid) if ACTOR in command_of(pid)}

    def at_work_on(self, output: Path) -> set[int]:
        """The processes of the actors that hold the lock on a file of answers."""
        lock = str(output.with_name(f"{output.name}.partial") / "lock")
        return {pid for pid in self.actors() if lock in opened_by(pid)}

    def kill_at_work_on(self, output: Path) -> None:
        """Kills the actor that is, or is next, at work on a file."""
        until(lambda: self.at_work_on(output), SECONDS)
        (pid,) = self.at_work_on(output)
        os.kill(pid, signal.SIGKILL)
        until(lambda: pid not in self.at_work_on(output))


def opened_by(pid: int) -> set[str]:
    """The files that a process has open."""
    found = set()
    with suppress(FileNotFoundError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                found.add(os.readlink(link))
    return found


@pytest.fixture(scope="module")
def ray() -> Iterator[Ray]:
    with ray_on_this_machine() as (process, log):
        said = Path(log.name).read_text()
        found = Ray(process, said.partition("ready at ")[2].split()[0])
        yield found
        for one in found.started:
            one.kill()
            one.wait()


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """The exit code of a run, and what the command itself said."""
    _, said = process.communicate(timeout=SECONDS)
    lines = said.splitlines(keepends=True)
    assert "Traceback" not in said
    return process.returncode, "".join(line for line in lines if line.startswith("probmap map:"))


def corpus(folder: Path) -> Path:
    """Files in several formats, one of which is none, and one of which has a row of NaN."""
    source = folder / "in"
    (source / "more").mkdir(parents=True)
    ragged = [RANDOM.normal(size=30 + row % 9).astype(np.float32) for row in range(150)]
    write_logits(source / "ragged.parquet", ragged, None)
    equal = [*RANDOM.normal(size=(170, 20)) * 3]
    write_logits(source / "more" / "equal.arrow", equal, [*RANDOM.uniform(1.1, 2, 170)])
    write_logits(source / "hand.jsonl", [np.array([0, 0.5, 1])], [2.0])
    nan = RANDOM.normal(size=(9, 4))
    nan[5, 2] = np.nan
    write_logits(source / "nan.parquet", [*nan], None)
    (source / "bad.parquet").write_bytes(b"PAR1 is how such a file begins, and how it ends: PAR1")
    return source


def test_a_corpus_is_answered_and_a_bad_file_loses_only_itself(ray: Ray, tmp_path: Path) -> None:
    source, output = corpus(tmp_path), tmp_path / "out"
    arguments = [f"{source}/**/*.*", output, *ASKED]
    code, said = ended(ray.start(*arguments))
    assert code == 2
    bad, nan = sorted(said.splitlines())
    assert "bad.parquet is no Parquet file" in bad
    assert "nan.parquet" in nan
    assert "row 5" in nan
    names = ["hand.parquet", "more/equal.parquet", "ragged.parquet"]
    found = [path for path in sorted(output.rglob("*")) if path.is_file()]
    assert found == [output / name for name in (".probmap.jsonl", *names)]
    # By hand: the threshold is 1/4.
    assert read_answers(output / "hand.parquet")["probabilities"].tolist() == [[0, 0.25, 0.75]]
    alone = tmp_path / "alone.parquet"
    for path in (source / "ragged.parquet", source / "more" / "equal.arrow", source / "hand.jsonl"):
        succeeded("--input", path, "--output", alone, *ASKED)
        same = (output / path.relative_to(source)).with_suffix(".parquet")
        assert same.read_bytes() == alone.read_bytes()

    # The same command goes on: with what was mended and what is new, and with nothing else.
    before = {name: (output / name).stat().st_ino for name in names}
    write_logits(source / "bad.parquet", [RANDOM.normal(size=3)], None)
    write_logits(source / "new.npy", [*RANDOM.normal(size=(3, 2))], None)
    code, said = ended(ray.start(*arguments))
    assert code == 3
    assert said == nan + "\n"
    assert {name: (output / name).stat().st_ino for name in names} == before
    assert len(read_answers(output / "bad.parquet")["probabilities"]) == 1
    assert len(read_answers(output / "new.parquet")["probabilities"]) == 3


def pieces(output: Path) -> int:
    """How much of a file is done and kept (a count)."""
    state = output.with_name(f"{output.name}.partial") / "state.json"
    try:
        return int(json.loads(state.read_text())["done"])
    except FileNotFoundError:
        return 0


def test_actors_that_die_and_runs_that_end_lose_nothing(ray: Ray, tmp_path: Path) -> None:
    source, output = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    # Enough that a run which goes on with it is not done before it has been seen to.
    np.save(source / "large.npy", RANDOM.normal(size=(16_000, 60)) * 3)
    np.save(source / "small.npy", RANDOM.normal(size=(3, 60)))
    arguments = [f"{source}/*.npy", output, *SLOW]
    large = output / "large.parquet"

    process = ray.start(*arguments)
    until(lambda: pieces(large) > 0, SECONDS)
    for _ in range(TRIES):
        ray.kill_at_work_on(large)
    code, said = ended(process)
    assert code == 1
    assert "large.npy: the process that mapped it died 4 times" in said
    assert sorted(path.name for path in output.glob("*.parquet")) == ["small.parquet"]

    kept = pieces(large)
    assert kept > 0
    process = ray.start(*arguments)
    until(lambda: pieces(large) > kept, SECONDS)
    process.send_signal(signal.SIGINT)
    code, said = ended(process)
    assert code == 130
    assert "interrupted; 1 of 2 files are done" in said

    assert ended(ray.start(*arguments)) == (0, "")
    alone = tmp_path / "alone.parquet"
    succeeded("--input", source / "large.npy", "--output", alone, *SLOW)
    assert large.read_bytes() == alone.read_bytes()
    names = [".probmap.jsonl", "large.parquet", "small.parquet"]
    assert sorted(path.name for path in output.iterdir()) == names
