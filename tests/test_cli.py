"""The command line."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mappings.registry import MAPPINGS
from server import ROOT
from service.cli import main
from service.settings import Settings


@dataclass
class Run:
    """What one run of the command line did."""

    code: int
    out: str
    err: str


Probmap = Callable[..., Run]


@pytest.fixture
def probmap(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Probmap:
    """Runs the command line in this process: a new one takes seconds to import torch."""
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments: str) -> Run:
        try:
            code = main(arguments)
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 1
        captured = capsys.readouterr()
        return Run(code, captured.out, captured.err)

    return run


@pytest.fixture
def succeeded(probmap: Probmap) -> Callable[..., str]:
    """Runs the command line, which has to succeed; what it printed."""

    def run(*arguments: str) -> str:
        done = probmap(*arguments)
        assert (done.code, done.err) == (0, "")
        return done.out

    return run


Succeeded = Callable[..., str]


def probabilities(table: str) -> list[float]:
    """The third column of every line that starts with a class id."""
    lines = [line.split() for line in table.splitlines() if re.match(r"\d+\s", line)]
    return [float(line[2]) for line in lines]


def test_the_version_is_told(succeeded: Succeeded) -> None:
    assert re.fullmatch(r"probmap \S+\n", succeeded("--version"))


def test_a_row_is_mapped(succeeded: Succeeded) -> None:
    table = succeeded("map", "--mapping", "entmax", "--alpha", "2", "0", "0.25", "0.5")
    assert "entmax" in table
    assert "alpha=2.0" in table
    assert probabilities(table) == pytest.approx([1 / 12, 4 / 12, 7 / 12], abs=1e-6)


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["-1.5", "-1.5"], [0.5, 0.5]),
        (["--mapping", "sparsemax", "-1e5", "-3", "null"], [0, 1, 0]),
        (["--mapping", "sparsegen", "--lam", "-1", "-3", "-2", "-1"], [0, 0.25, 0.75]),
        (["-inf", "2", "2"], [0, 0.5, 0.5]),
        (["--mapping", "weighted_softmax", "--weights", "1,3", "0", "0"], [0.25, 0.75]),
        (["--mapping", "sparse_softmax", "--k", "1", "--", "3", "-1"], [1, 0]),
    ],
    ids=str,
)
def test_negative_numbers_masks_and_lists_are_understood(
    succeeded: Succeeded, arguments: list[str], wanted: list[float]
) -> None:
    assert probabilities(succeeded("map", *arguments)) == pytest.approx(wanted, abs=1e-6)


def test_a_process_of_its_own_warns_of_nothing() -> None:
    command = [sys.executable, "-W", "error", "-m", "service.cli", "map", "--output", "-", "0", "0"]
    run = subprocess.run(command, capture_output=True, cwd=ROOT, timeout=60, check=True)
    assert run.stderr == b""
    assert json.loads(run.stdout)["probabilities"] == [[0.5, 0.5]]


def test_every_parameter_of_every_mapping_is_a_flag(succeeded: Succeeded) -> None:
    shown = succeeded("map", "--help")
    for mapping in MAPPINGS.values():
        for name in mapping.model_fields:
            if name != "name":
                assert f"--{name.replace('_', '-')}" in shown


def test_arrays_go_in_and_out(succeeded: Succeeded, tmp_path: Path) -> None:
    logits, answer = tmp_path / "logits.npy", tmp_path / "answer.npz"
    np.save(logits, np.array([[0, 0.5, 1], [3, -np.inf, 3]]))
    wanted = "probabilities,support,entropy"
    arguments = ["--mapping", "sparsemax", "--input", str(logits), "--output", str(answer)]
    assert succeeded("map", *arguments, "--outputs", wanted) == ""
    got = np.load(answer)
    assert got["probabilities"].tolist() == [[0, 0.25, 0.75], [0.5, 0, 0.5]]
    assert got["support_offsets"].tolist() == [0, 2, 4]
    assert got["support_indices"].tolist() == [2, 1, 0, 2]
    assert got["support_probabilities"].tolist() == [0.75, 0.25, 0.5, 0.5]
    assert got["entropy"][1] == pytest.approx(np.log(2))


@pytest.mark.parametrize(
    "document",
    [
        [[0, 0.5, 1], [None, 7]],
        {"logits": [[0, 0.5, 1], [None, 7]]},
        {"logits": [[0, 0.5, 1], [None, 7]], "mapping": {"name": "softmax"}},
    ],
    ids=["rows", "a request", "a request with another mapping"],
)
def test_json_goes_in_and_out(succeeded: Succeeded, document: Any, tmp_path: Path) -> None:
    source, answer = tmp_path / "logits.json", tmp_path / "answer.json"
    source.write_text(json.dumps(document))
    arguments = ["--mapping", "sparsemax", "--input", str(source), "--output"]
    assert succeeded("map", *arguments, str(answer)) == ""
    got = json.loads(answer.read_text())
    assert got["probabilities"] == [[0, 0.25, 0.75], [0, 1]]
    assert json.loads(succeeded("map", *arguments, "-")) == got


def test_rows_without_an_answer_are_reported(probmap: Probmap, tmp_path: Path) -> None:
    logits = tmp_path / "logits.npy"
    np.save(logits, np.array([[1, np.nan], [0, 0]], np.float32))
    arguments = ["--input", str(logits), "--invalid-rows", "report"]
    reported = probmap("map", *arguments)
    assert (reported.code, reported.err) == (3, "")
    assert "no answer: nan at class 1" in reported.out
    refused = probmap("map", "--input", str(logits))
    assert refused.code == 3
    assert "row 0: nan at class 1" in refused.err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "COMMAND"),
        (["fly"], 2, "fly"),
        (["map"], 2, "give logits"),
        (["map", "one"], 2, "'one' is not a number"),
        (["map", "nan"], 2, "not a finite number"),
        (["map", "1", "--mapping", "softmin"], 2, "there is no mapping 'softmin'"),
        (["map", "1", "--alpha", "2"], 2, "unknown field 'alpha'"),
        (["map", "1", "--mapping", "entmax", "--alpha", "x"], 2, "--alpha"),
        (["map", "1", "--mapping", "entmax", "--alpha", "17"], 2, "less than or equal to 16"),
        (["map", "1", "--mapping", "entmax", "--alpha", "1,2"], 2, "2 values for 1 rows"),
        (["map", "1", "--outputs", "colour"], 2, "outputs[0]"),
        (["map", "1", "--input", "x.npy"], 2, "not both"),
        (["map", "--input", "absent.npy"], 1, "absent.npy: No such file"),
        (["map", "--input", "logits.csv"], 2, ".jsonl or .json"),
        (["map", "1", "--output", "answer.csv"], 2, ".jsonl or .json"),
        (["map", "null"], 3, "no unmasked class"),
        (["map", "1", "--processors", "{"], 2, "--processors should be JSON"),
        (["map", "1", "--processors", '[{"name": "top_k", "k": 0}]'], 2, "processors[0].k"),
        (["map", "1", "--processors", '["tpo_k"]'], 2, "processors[0]"),
        (["map", "1", "--device", "cuda:99"], 2, "cuda:99"),
        (["map", "1", "--device", "abacus"], 2, "abacus"),
        (["serve", "--port", "high"], 2, "--port (PROBMAP_PORT)"),
        (["serve", "--max-rows", "0"], 2, "--max-rows (PROBMAP_MAX_ROWS)"),
        (["serve", "--device", "cuda:99"], 2, "cuda:99"),
        (["serve", "--wings", "2"], 2, "--wings"),
    ],
    ids=str,
)
def test_what_is_wrong_is_told_without_a_traceback(
    probmap: Probmap, arguments: list[str], code: int, message: str
) -> None:
    run = probmap(*arguments)
    assert run.code == code, run.err
    assert message in run.err
    assert "Traceback" not in run.err
    assert run.out == ""


def test_a_wrong_variable_is_named(probmap: Probmap, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROBMAP_MAX_BODY_BYTES", "many")
    run = probmap("serve")
    assert run.code == 2
    assert "PROBMAP_MAX_BODY_BYTES" in run.err


def test_a_file_that_holds_objects_is_refused(probmap: Probmap, tmp_path: Path) -> None:
    path = tmp_path / "logits.npy"
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    run = probmap("map", "--input", str(path))
    assert run.code == 2
    assert "Traceback" not in run.err


def test_every_setting_is_a_flag_and_a_variable_with_its_default(succeeded: Succeeded) -> None:
    shown = " ".join(succeeded("serve", "--help").split())
    for name, field in Settings.model_fields.items():
        assert f"--{name.replace('_', '-')}" in shown
        default = {(): "none", ("live", "ready"): "live,ready"}.get(field.default, field.default)
        assert f"[{default}; PROBMAP_{name.upper()}]" in shown
        assert field.description
        assert " ".join(field.description.split()) in shown


def test_processors_come_before_the_mapping(probmap: Probmap) -> None:
    run = probmap("map", "--processors", '[{"name": "top_k", "k": 1}]', "--output", "-", "1", "3")
    assert run.code == 0, run.err
    assert json.loads(run.out)["probabilities"] == [[0.0, 1.0]]
