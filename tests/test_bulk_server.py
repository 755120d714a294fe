"""`probmap map` on files against a server: the same answers, and errors that tell what to do."""

import json
from pathlib import Path

import numpy as np
import pytest

from bulk_files import probmap, succeeded, write_logits
from scripted_server import RESET, Step, scripted
from server import shared_server

RANDOM = np.random.default_rng(22)
LOGITS = [row.astype(np.float32) for row in RANDOM.normal(size=(40, 9)) * 2]
RAGGED = [row[: 2 + place % 8] for place, row in enumerate(LOGITS)]
ALPHA = [round(float(value), 3) for value in RANDOM.uniform(1.1, 2.5, 40)]

OUTPUTS = "probabilities,log_probabilities,support,normalizer,entropy,support_size"
ENTMAX = ["--mapping", "entmax", "--outputs", OUTPUTS]


def both(arguments: list[object], output: Path) -> tuple[bytes, bytes]:
    """What is written by this process and by a server, which must end alike."""
    runs = [probmap(*arguments, "--output", output)]
    here = output.read_bytes()
    output.unlink()
    runs.append(probmap(*arguments, "--output", output, "--url", shared_server().url))
    assert runs[0] == runs[1]
    return here, output.read_bytes()


@pytest.mark.parametrize("read", ["npy", "safetensors", "parquet", "jsonl"])
@pytest.mark.parametrize("written", ["npz", "jsonl", "arrow"])
def test_a_server_answers_as_this_process_does(read: str, written: str, tmp_path: Path) -> None:
    source = tmp_path / f"logits.{read}"
    flags = write_logits(source, LOGITS, ALPHA)
    arguments = ["--input", source, *ENTMAX, *flags, "--batch-rows", "7", "--support-limit", "2"]
    here, there = both(arguments, tmp_path / f"answers.{written}")
    assert here == there


@pytest.mark.parametrize(
    "flags",
    [
        ["--outputs", "jacobian,parameter_gradients", "--mapping", "entmax"],
        ["--mapping", "gumbel_softmax", "--seed", "18446744073709551615"],
        ["--mapping", "sparse_softmax", "--k", "3", "--dtype", "float64"],
        ["--processors", '[{"name": "ban", "ids": [1, 2]}, "p_less", {"name": "top_p", "p": 0.9}]'],
        ["--mapping", "weighted_softmax", "--weights", "1,2,3,4,5,6,7,8,0"],
    ],
    ids=" ".join,
)
def test_whatever_is_asked_arrives(flags: list[str], tmp_path: Path) -> None:
    source = tmp_path / "logits.npy"
    write_logits(source, LOGITS, None)
    here, there = both(["--input", source, *flags], tmp_path / "answers.npz")
    assert here == there


def test_rows_of_any_length_and_without_an_answer_arrive(tmp_path: Path) -> None:
    source = tmp_path / "logits.parquet"
    rows = [row.copy() for row in RAGGED]
    rows[5][0] = np.nan
    write_logits(source, rows, None)
    flags = ["--mapping", "sparsemax", "--outputs", OUTPUTS, "--invalid-rows", "report"]
    here, there = both(["--input", source, *flags], tmp_path / "answers.jsonl")
    assert here == there
    assert json.loads(here.splitlines()[5])["status"] == ["nan at class 0"]
    run = probmap("--input", source, "--output", tmp_path / "a.jsonl", "--url", shared_server().url)
    assert run.code == 3
    assert "row 5: nan at class 0" in run.err


def test_lines_of_every_kind_arrive(tmp_path: Path) -> None:
    source = tmp_path / "requests.jsonl"
    lines = [
        '{"id": "a", "op": "sample", "logits": [0, 0.5, 1], "seed": 7, "samples": 3}',
        "broken",
        '{"op": "loss", "logits": [[0, 0.5, 1], [0, 0.5, 1]], "targets": [1, 0]}',
        '{"op": "loss", "logits": [0, 0.5], "targets": [[0.5, 0.5]], "kind": "accuracy"}',
        '{"logits": [0, 1], "jacobian": {"form": "vjp", "vector": [1, 2]}}',
        '{"logits": [0, 1], "jacobian": {"form": "factors"}}',
        '{"logits": [0, 1], "mapping": "sparsemax", "jacobian": {"form": "support"}}',
        '{"op": "sample", "logits": [0, null], "samples": 2, "replacement": false}',
        '{"logits": [[0, 1], [null, null]]}',
        '{"logits": []}',
    ]
    source.write_text("\n".join(lines))
    here, there = both(["--input", source], tmp_path / "answers.jsonl")
    left = [json.loads(line) for line in here.splitlines()]
    right = [json.loads(line) for line in there.splitlines()]
    assert len(left) == len(right) == len(lines)
    for one, other in zip(left, right, strict=True):
        if "error" in one:
            assert one["error"]["code"] == other["error"]["code"]
        else:
            assert one == other


def test_one_row_may_be_asked_of_a_server(tmp_path: Path) -> None:
    arguments = ["--mapping", "sparsemax", "0", "0.5", "1"]
    here = probmap(*arguments)
    assert probmap(*arguments, "--url", shared_server().url) == here
    assert here.code == 0
    assert "0.75" in here.out


def test_a_server_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    source = tmp_path / "logits.npy"
    write_logits(source, LOGITS, None)
    run = probmap(
        "--input", source, "--output", tmp_path / "out.npz", "--url", "http://127.0.0.1:9"
    )
    assert run.code == 1
    assert "no connection" in run.err
    assert [path.name for path in tmp_path.iterdir()] == ["logits.npy"]


@pytest.mark.parametrize("status", [401, 500])
def test_a_server_that_fails_between_keeps_what_is_done(status: int, tmp_path: Path) -> None:
    source, output = tmp_path / "requests.jsonl", tmp_path / "answers.jsonl"
    source.write_text("\n".join('{"logits": [0, 1]}' for _ in range(200)))
    with scripted(*[Step()] * 70, *[Step(status=status)] * 200) as server:
        run = probmap("--input", source, "--output", output, "--url", server.url)
    assert run.code == 1
    assert "64 rows are kept" in run.err
    succeeded("--input", source, "--output", output, "--url", shared_server().url)
    answers = [json.loads(line) for line in output.read_text().splitlines()]
    assert [answer["index"] for answer in answers] == list(range(200))
    assert answers[0]["probabilities"] == [[0.25, 0.75]]
    assert answers[64]["probabilities"][0][0] == pytest.approx(1 / (1 + np.e))


def test_a_lost_connection_is_tried_again(tmp_path: Path) -> None:
    source, output = tmp_path / "requests.jsonl", tmp_path / "answers.jsonl"
    source.write_text('{"logits": [0, 1]}\n')
    with scripted(RESET, Step()) as server:
        succeeded("--input", source, "--output", output, "--url", server.url)
    assert json.loads(output.read_text())["probabilities"] == [[0.25, 0.75]]
