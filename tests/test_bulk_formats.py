"""`probmap map` on files: every format in, every format out, as called directly."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pyarrow as pa
import pytest
import safetensors.torch
import torch

from answers import supported
from bulk_files import (
    INPUTS,
    OUTPUTS,
    probmap,
    read_answers,
    read_table,
    succeeded,
    write_logits,
    write_table,
)
from mappings.catalogue.entmax import Entmax
from mappings.catalogue.sparsemax import Sparsemax
from mappings.evaluate import evaluate
from mappings.evaluation import Evaluation

RANDOM = np.random.default_rng(20)
LOGITS = [row.astype(np.float32) for row in RANDOM.normal(size=(40, 9)) * 2]
LOGITS[3][4] = -np.inf
ALPHA = [round(float(value), 3) for value in RANDOM.uniform(1.1, 2.5, 40)]
RAGGED = [row[: 2 + place % 8] for place, row in enumerate(LOGITS)]

WANTED = ("probabilities", "support", "entropy", "support_size", "normalizer")
ASKED = ["--mapping", "entmax", "--outputs", ",".join(WANTED), "--batch-rows", "7"]


def direct(suffix: str, rows: Any = LOGITS) -> Evaluation:
    """The answers to the rows as they are in a file: JSON's numbers are doubles."""
    logits = torch.from_numpy(np.stack(rows))
    wide = logits.double() if suffix == "jsonl" else logits
    return evaluate(wide, Entmax(alpha=ALPHA), outputs=WANTED)  # type: ignore[arg-type]


def assert_same(found: dict[str, Any], wanted: Evaluation) -> None:
    """Equal to the bit."""
    for name in ("probabilities", "entropy", "support_size", "normalizer"):
        value = getattr(wanted, name).numpy()
        assert found[name].astype(value.dtype).tolist() == value.tolist(), name
    listed = supported(wanted)
    assert found["support_indices"] == [row.tolist() for row in listed.lists()]
    sizes = listed.offsets.diff().tolist()
    for name in ("probabilities", "log_probabilities"):
        values = getattr(listed, name)
        for row, part in enumerate(values.split(sizes)):
            # JSON has the shortest decimals that are these floats.
            given = np.array(found[f"support_{name}"][row], part.numpy().dtype)
            assert given.tolist() == part.tolist(), (name, row)


@pytest.mark.parametrize("written", OUTPUTS)
@pytest.mark.parametrize("read", INPUTS)
def test_every_format_is_answered_in_every_format(read: str, written: str, tmp_path: Path) -> None:
    source, output = tmp_path / f"logits.{read}", tmp_path / f"answers.{written}"
    flags = write_logits(source, LOGITS, ALPHA)
    succeeded("--input", source, "--output", output, *ASKED, *flags)
    assert_same(read_answers(output), direct(read))
    assert [path.name for path in tmp_path.iterdir() if path != source] == [output.name]


@pytest.mark.parametrize("read", INPUTS)
def test_one_array_goes_to_npy(read: str, tmp_path: Path) -> None:
    source, output = tmp_path / f"logits.{read}", tmp_path / "answers.npy"
    flags = write_logits(source, LOGITS, ALPHA)
    succeeded("--input", source, "--output", output, "--mapping", "entmax", *flags)
    wanted = direct(read).probabilities
    assert wanted is not None
    assert np.load(output).tobytes() == wanted.numpy().tobytes()


@pytest.mark.parametrize("read", ["arrow", "arrows", "parquet", "jsonl"])
@pytest.mark.parametrize("written", ["arrow", "parquet", "jsonl"])
def test_rows_may_differ_in_length(read: str, written: str, tmp_path: Path) -> None:
    source, output = tmp_path / f"logits.{read}", tmp_path / f"answers.{written}"
    flags = write_logits(source, RAGGED, ALPHA)
    succeeded("--input", source, "--output", output, *ASKED, *flags)
    if written == "jsonl":
        lines = map(json.loads, output.read_text().splitlines())
        got = [line["probabilities"][0] for line in lines]
    else:
        got = read_table(output)["probabilities"].to_pylist()
    for row, values in enumerate(RAGGED):
        logits = torch.from_numpy(values)
        wide = logits.double() if read == "jsonl" else logits
        wanted = evaluate(wide, Entmax(alpha=ALPHA[row])).probabilities
        assert wanted is not None
        kept = np.array(got[row]).astype(wanted.numpy().dtype)
        assert kept.tolist() == wanted[0].tolist()


@pytest.mark.parametrize("written", ["npy", "npz", "safetensors"])
def test_tensors_cannot_hold_rows_that_differ_in_length(written: str, tmp_path: Path) -> None:
    source, output = tmp_path / "logits.parquet", tmp_path / f"answers.{written}"
    write_logits(source, RAGGED, None)
    run = probmap("--input", source, "--output", output)
    assert run.code == 2
    assert "rows differ in length" in run.err
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize("written", ["npz", "safetensors"])
def test_tensors_hold_supports_of_rows_that_differ_in_length(written: str, tmp_path: Path) -> None:
    source, output = tmp_path / "logits.parquet", tmp_path / f"answers.{written}"
    write_logits(source, RAGGED, None)
    flags = ["--mapping", "sparsemax", "--outputs", "support", "--batch-rows", "7"]
    succeeded("--input", source, "--output", output, *flags)
    found = read_answers(output)
    assert found["lengths"].tolist() == [len(row) for row in RAGGED]
    for row, values in enumerate(RAGGED):
        one = evaluate(torch.from_numpy(values), Sparsemax(), outputs=["support"])
        assert found["support_indices"][row] == supported(one).indices.tolist()


def test_lines_are_answered_as_a_stream_answers_them(tmp_path: Path) -> None:
    source, output = tmp_path / "requests.jsonl", tmp_path / "answers.jsonl"
    lines = [
        '{"id": "a", "logits": [0, 0.5, 1], "mapping": "sparsemax"}',
        "",
        '{"id": 7, "op": "sample", "logits": [0, 0.5, 1], "mapping": "sparsemax", "seed": 7}',
        '{"id": "bad", "logits": [0, "x"]}',
        "{",
        '{"op": "loss", "logits": [[0, 0.5, 1], [0, 0.5, 1]], "targets": [1, 0]}',
        '{"logits": [[null], [1]]}',
        '{"logits": [[null], [1]], "invalid_rows": "report"}',
    ]
    source.write_text("\n".join(lines))
    run = probmap("--input", source, "--output", output)
    assert (run.code, run.err) == (3, "")
    answers = [json.loads(line) for line in output.read_text().splitlines()]
    assert [answer["index"] for answer in answers] == list(range(7))
    assert [answer["id"] for answer in answers[:3]] == ["a", 7, "bad"]
    assert answers[0]["probabilities"] == [[0, 0.25, 0.75]]
    assert answers[1]["tokens"] == [[2]]
    codes = [answer["error"]["code"] if "error" in answer else None for answer in answers]
    bad = ["invalid_request", "malformed_body", None, "invalid_row", None]
    assert codes == [None, None, *bad]
    assert answers[4]["mapping"]["name"] == "softmax"
    assert answers[6]["status"] == ["no unmasked class", "ok"]


def test_flags_win_over_what_lines_say(tmp_path: Path) -> None:
    source, output = tmp_path / "requests.jsonl", tmp_path / "answers.jsonl"
    source.write_text('{"logits": [0, 0.5, 1], "mapping": "softmax"}\n')
    succeeded("--input", source, "--output", output, "--mapping", "sparsemax")
    assert json.loads(output.read_text())["probabilities"] == [[0, 0.25, 0.75]]


def test_a_bad_line_has_its_row_in_a_table(tmp_path: Path) -> None:
    source, output = tmp_path / "requests.jsonl", tmp_path / "answers.parquet"
    source.write_text('{"logits": [1]}\n{"logits": "x"}\n{"logits": [[2, 2], [3]]}\n')
    assert probmap("--input", source, "--output", output).code == 3
    rows = read_table(output).to_pylist()
    assert [row["probabilities"] for row in rows] == [[1], None, [0.5, 0.5], [1]]
    assert json.loads(rows[1]["error"])["code"] == "invalid_request"
    run = probmap("--input", source, "--output", tmp_path / "answers.npz")
    assert run.code == 2
    assert "line 1" in run.err
    assert ".parquet" in run.err


def test_what_is_asked_may_be_in_the_files_metadata(tmp_path: Path) -> None:
    row = np.array([[0, 0.5, 1]])
    request = json.dumps({"mapping": "sparsemax"})
    tensors = {"logits": torch.from_numpy(row)}
    path = tmp_path / "logits.safetensors"
    safetensors.torch.save_file(tensors, path, {"request": request})
    table = pa.table({"logits": pa.array(row.tolist(), pa.list_(pa.float64()))})
    write_table(tmp_path / "logits.arrow", table.replace_schema_metadata({"probmap": request}))
    for source in (path, tmp_path / "logits.arrow"):
        succeeded("--input", source, "--output", tmp_path / "out.npy")
        assert np.load(tmp_path / "out.npy").tolist() == [[0, 0.25, 0.75]]
        succeeded("--input", source, "--output", tmp_path / "out.npy", "--mapping", "entmax")
        assert np.load(tmp_path / "out.npy")[0, 0] > 0


def test_bfloat16_is_read_as_it_is(tmp_path: Path) -> None:
    logits = torch.randn(20, 5, generator=torch.Generator().manual_seed(1)).bfloat16()
    safetensors.torch.save_file({"logits": logits}, tmp_path / "logits.safetensors")
    succeeded("--input", tmp_path / "logits.safetensors", "--output", tmp_path / "out.npy")
    wanted = torch.softmax(logits.double(), -1)
    assert np.load(tmp_path / "out.npy") == pytest.approx(wanted.numpy(), rel=1e-6)


@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(np.stack(LOGITS)),
        np.stack(LOGITS).astype(">f4"),
        np.stack(LOGITS).astype(np.float16),
        np.stack(LOGITS).astype(np.longdouble),
        np.arange(12).reshape(4, 3),
        np.arange(12, dtype=np.uint8).reshape(4, 3),
        np.zeros((0, 5)),
        np.array([0.0, 0.5, 1.0]),
    ],
    ids=["Fortran", "big-endian", "half", "long", "integers", "bytes", "no rows", "one row"],
)
def test_arrays_of_any_order_and_type_are_read(array: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "logits.npy", array)
    source, output = tmp_path / "logits.npy", tmp_path / "out.npy"
    succeeded("--input", source, "--output", output, "--batch-rows", "3")
    rows = np.atleast_2d(array)
    wide = torch.softmax(torch.from_numpy(rows.astype(np.float64)), -1).numpy()
    got = np.load(output)
    assert len(got) == len(rows)
    if len(rows):
        assert got == pytest.approx(wide, rel=1e-5)


@pytest.mark.parametrize("written", OUTPUTS)
def test_rows_without_an_answer_are_reported(written: str, tmp_path: Path) -> None:
    rows = np.stack(LOGITS)
    rows[[2, 17], 5] = np.nan
    np.save(tmp_path / "logits.npy", rows)
    output = tmp_path / f"answers.{written}"
    flags = ["--invalid-rows", "report", "--batch-rows", "7"]
    run = probmap("--input", tmp_path / "logits.npy", "--output", output, *flags)
    assert (run.code, run.err) == (3, "")
    found = read_answers(output)
    status = ["ok"] * 40
    status[2] = status[17] = "nan at class 5"
    assert found["status"].tolist() == status
    good = [row for row in range(40) if status[row] == "ok"]
    wanted = np.stack([found["probabilities"][row] for row in good])
    assert wanted == pytest.approx(
        torch.softmax(torch.from_numpy(rows[good]), -1).numpy(), rel=1e-5
    )
    for row in (2, 17):
        lost = found["probabilities"][row]
        assert lost is None or np.isnan(lost).all()


def test_a_row_without_an_answer_ends_the_run(tmp_path: Path) -> None:
    rows = np.stack(LOGITS)
    rows[17, 5] = np.nan
    np.save(tmp_path / "logits.npy", rows)
    output = tmp_path / "answers.npz"
    run = probmap("--input", tmp_path / "logits.npy", "--output", output, "--batch-rows", "7")
    assert run.code == 3
    assert "row 17: nan at class 5" in run.err
    assert [path.name for path in tmp_path.iterdir()] == ["logits.npy"]


def test_polars_reads_what_is_written(tmp_path: Path) -> None:
    write_logits(tmp_path / "logits.npy", LOGITS, None)
    for suffix, read in (("arrow", polars.read_ipc), ("parquet", polars.read_parquet)):
        output = tmp_path / f"answers.{suffix}"
        flags = ["--mapping", "sparsemax", "--outputs", "support,support_size"]
        succeeded("--input", tmp_path / "logits.npy", "--output", output, *flags)
        table = read(output)
        assert table["support_indices"].list.len().to_list() == table["support_size"].to_list()


def test_columns_choose_what_is_a_parameter(tmp_path: Path) -> None:
    table = pa.table(
        {
            "name": ["a", "b"],
            "logits": pa.array([[0, 0.5, 1], [0, 0.5, 1]], pa.list_(pa.float64())),
            "alpha": [2.0, 1.0],
        }
    )
    source, output = tmp_path / "logits.parquet", tmp_path / "answers.npy"
    write_table(source, table)
    arguments = ["--input", source, "--output", output, "--mapping", "entmax"]
    assert "'name'" in probmap(*arguments).err
    succeeded(*arguments, "--columns", "alpha")
    assert np.load(output)[0].tolist() == [0, 0.25, 0.75]
    assert np.load(output)[1] == pytest.approx(np.exp([0, 0.5, 1]) / np.exp([0, 0.5, 1]).sum())
    succeeded(*arguments, "--columns", "", "--alpha", "2")
    assert np.load(output).tolist() == [[0, 0.25, 0.75]] * 2


def test_processors_and_weights_may_be_given_a_row(tmp_path: Path) -> None:
    np.save(tmp_path / "logits.npy", np.zeros((5, 3)))
    weights = np.array([[1, 1, 2], [1, 3, 0], [2, 1, 1], [0, 0, 1], [1, 1, 1]])
    np.save(tmp_path / "weights.npy", weights.astype(np.float64))
    bans = '{"name": "ban", "ids": [[0], [1], [2], [0], [1]]}'
    chain = f'[{bans}, {{"name": "top_k", "k": [1, 1, 3, 2, 1]}}]'
    output = tmp_path / "out.npy"
    arguments = ["--input", tmp_path / "logits.npy", "--output", output, "--batch-rows", "2"]
    flags = ["--mapping", "weighted_softmax", "--weights", tmp_path / "weights.npy"]
    succeeded(*arguments, *flags, "--processors", chain)
    wanted = [[0, 1, 0], [1, 0, 0], [2 / 3, 1 / 3, 0], [0, 0, 1], [1, 0, 0]]
    assert np.load(output) == pytest.approx(np.array(wanted))
