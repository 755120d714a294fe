"""`probmap map --plot`: pictures of a few rows."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from bulk_files import probmap, write_logits

LOGITS = [np.array([0, 0.5, 1]), np.array([3.0, np.nan, 1]), np.zeros(3)]


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    run = probmap("--mapping", "sparsemax", "--plot", tmp_path / "out.png", "0", "0.5", "1")
    assert (run.code, run.err) == (0, "")
    picture = imread(tmp_path / "out.png")[..., :3]
    # White, with bars of one colour in it that take a good part of it.
    colours, counts = np.unique(picture.reshape(-1, 3), axis=0, return_counts=True)
    ranked = colours[np.argsort(-counts)]
    assert ranked[0].tolist() == [1, 1, 1]
    assert np.sort(counts)[-2] > 0.05 * counts.sum()
    assert [path.name for path in tmp_path.iterdir()] == ["out.png"]


def test_a_page_shows_the_probabilities_without_a_network(tmp_path: Path) -> None:
    source, output = tmp_path / "logits.npy", tmp_path / "answers.npy"
    write_logits(source, LOGITS, None)
    flags = ["--mapping", "sparsemax", "--invalid-rows", "report"]
    arguments = ["--input", source, "--output", output, "--plot", tmp_path / "out.html", *flags]
    assert probmap(*arguments).code == 3
    assert np.load(output)[0].tolist() == [0, 0.25, 0.75]
    page = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert "nan at class 1" in page
    assert not re.search(r"<script[^>]* src=", page)
    shown = re.search(r"Plotly\.newPlot\(\s*\"[^\"]*\",\s*(\[.*?\]),\s*\{", page, re.S)
    assert shown is not None
    traces = json.loads(shown[1])
    assert traces[0]["y"] == [0, 0.25, 0.75]
    assert traces[2]["y"] == pytest.approx([1 / 3] * 3)


def test_of_a_long_row_the_most_probable_classes_are_shown(tmp_path: Path) -> None:
    write_logits(tmp_path / "logits.npy", [np.arange(1000) / 10], None)
    arguments = ["--input", tmp_path / "logits.npy", "--plot", tmp_path / "out.html"]
    assert probmap(*arguments).code == 0
    page = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert '"x":["999","998"' in page
    assert "1,000 classes" in page


@pytest.mark.parametrize(
    ("name", "rows", "message"),
    [
        ("out.svg", 1, ".png or .html"),
        ("out.png", 17, "at most 16 rows; the input has 17"),
        ("absent/out.png", 1, "absent"),
    ],
)
def test_what_cannot_be_drawn_is_told(name: str, rows: int, message: str, tmp_path: Path) -> None:
    write_logits(tmp_path / "logits.npy", [np.zeros(3)] * rows, None)
    run = probmap("--input", tmp_path / "logits.npy", "--plot", tmp_path / name)
    assert run.code == (1 if "absent" in name else 2)
    assert message in run.err


@pytest.mark.parametrize(("name", "package"), [("o.png", "matplotlib"), ("o.html", "plotly")])
def test_a_missing_package_is_named_with_its_extra(
    name: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    run = probmap("--plot", tmp_path / name, "0", "1")
    assert run.code == 2
    assert "probmap[plot]" in run.err
    assert run.out == ""
