"""Distributions as pictures: .png by matplotlib, .html by plotly."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from mappings.evaluation import VALID, Evaluation
from service.engine.job import Job
from service.files import written_whole

MAX_PLOTTED_ROWS = 16
"""The most rows that a picture shows (a count)."""

PLOTTED_CLASSES = 64
"""The most classes shown of a row (a count); of longer rows, the most probable."""

PACKAGES = {".png": "matplotlib", ".html": "plotly"}
"""What draws a picture, by its suffix."""

Bars = tuple[str, list[str], list[float]]
"""A row's title, the class ids shown, and their probabilities."""


def check_plot(path: Path, rows: int | None) -> None:
    """Raises ValueError for a picture that cannot be drawn, before anything is computed.

    Args:
        path: of the picture.
        rows: to be shown (a count); None: not known, which is too many.
    """
    package = PACKAGES.get(path.suffix)
    if package is None:
        raise ValueError(f"--plot should end in {' or '.join(PACKAGES)}")
    if rows is None or rows > MAX_PLOTTED_ROWS:
        has = "an unknown number of" if rows is None else f"{rows:,}"
        raise ValueError(f"--plot shows at most {MAX_PLOTTED_ROWS} rows; the input has {has}")
    try:
        importlib.import_module(package)
    except ImportError:
        raise ValueError(
            f"a {path.suffix} picture needs {package}; pip install 'probmap[plot]'"
        ) from None


def write_plot(path: Path, job: Job, evaluation: Evaluation) -> None:
    """Draws the probabilities of each row as bars."""
    rows = list(_bars(job, evaluation))
    with written_whole(path) as file:
        (_write_png if path.suffix == ".png" else _write_html)(file, rows)


def _bars(job: Job, evaluation: Evaluation) -> Iterator[Bars]:
    probabilities = evaluation.probabilities
    assert probabilities is not None
    for row, status in enumerate(evaluation.status):
        if status != VALID:
            yield f"row {row}: {status}", [], []
            continue
        width = job.classes if job.lengths is None else job.lengths[row]
        values = probabilities[row, :width]
        places = list(range(width))
        if width > PLOTTED_CLASSES:
            places = values.topk(PLOTTED_CLASSES).indices.tolist()
        more = f" ({width:,} classes, the most probable)" if width > PLOTTED_CLASSES else ""
        title = f"{job.request.mapping.name} of row {row}{more}"
        yield title, [str(place) for place in places], values[places].tolist()


def _write_png(file: IO[bytes], rows: list[Bars]) -> None:
    # Not pyplot, which would keep the figure and look for a screen.
    figure_module: Any = importlib.import_module("matplotlib.figure")
    figure = figure_module.Figure(figsize=(8, 2.5 * max(1, len(rows))), layout="constrained")
    axes = figure.subplots(max(1, len(rows)), squeeze=False)[:, 0]
    for axis, (title, classes, values) in zip(axes, rows, strict=False):
        axis.bar(classes, values)
        axis.set(title=title, xlabel="class", ylabel="probability", ylim=(0, None))
        axis.tick_params(axis="x", labelrotation=90 if len(classes) > 24 else 0, labelsize=7)
    figure.savefig(file, format="png")


def _write_html(file: IO[bytes], rows: list[Bars]) -> None:
    graphs: Any = importlib.import_module("plotly.graph_objects")
    subplots: Any = importlib.import_module("plotly.subplots")
    titles = [title for title, _, _ in rows]
    figure = subplots.make_subplots(rows=max(1, len(rows)), cols=1, subplot_titles=titles)
    for place, (title, classes, values) in enumerate(rows, start=1):
        figure.add_trace(graphs.Bar(x=classes, y=values, name=title), row=place, col=1)
    figure.update_xaxes(type="category", title="class")
    figure.update_yaxes(title="probability", rangemode="tozero")
    figure.update_layout(showlegend=False, height=300 * max(1, len(rows)))
    # With its script inside: a picture must open without a network.
    file.write(figure.to_html(include_plotlyjs=True).encode())
