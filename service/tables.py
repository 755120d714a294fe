"""Answers as small tables for people."""

from rich.console import Console
from rich.table import Table
from torch import Tensor

from mappings.evaluation import VALID, Evaluation
from service.engine.job import Job

SHOWN_ROWS = 10
"""Rows of logits shown (a count)."""

SHOWN_CLASSES = 24
"""Classes shown of a row (a count); of longer rows, the most probable."""

BAR_WIDTH = 24
"""The bar of probability 1 (characters)."""

LABELS = {"normalizer": "normalizer", "entropy": "entropy (nats)", "support_size": "support"}


def print_tables(job: Job, evaluation: Evaluation, rows: int | None) -> None:
    """Prints one table a row of logits.

    Args:
        job: the first of the rows.
        evaluation: their answers.
        rows: there are (a count); None: not known.
    """
    console = Console(highlight=False)
    fields = job.request.mapping.model_dump(exclude={"name"})
    console.print(job.request.mapping.name, " ".join(f"{k}={v}" for k, v in fields.items()))
    for row in range(min(job.rows, SHOWN_ROWS)):
        _print_row(console, job, evaluation, row)
    if job.rows >= SHOWN_ROWS and rows != SHOWN_ROWS:
        more = "perhaps" if rows is None else str(rows - SHOWN_ROWS)
        console.print(f"and {more} more rows; --output FILE writes them all")


def _print_row(console: Console, job: Job, evaluation: Evaluation, row: int) -> None:
    if job.rows > 1:
        console.print(f"\nrow {row}")
    if evaluation.status[row] != VALID:
        console.print(f"no answer: {evaluation.status[row]}")
        return
    width = job.classes if job.lengths is None else job.lengths[row]
    columns = {"logit": job.logits[row, :width]}
    for title, values in (
        ("probability", evaluation.probabilities),
        ("log-probability", evaluation.log_probabilities),
    ):
        if values is not None:
            columns[title] = values[row, :width]
    listed = _listed(columns)
    table = Table("class", box=None, pad_edge=False)
    for title in columns:
        table.add_column(title, justify="right")
    table.add_column("")
    for place in listed:
        numbers = [f"{float(values[place]):.6g}" for values in columns.values()]
        share = float(columns["probability"][place]) if "probability" in columns else 0.0
        table.add_row(str(place), *numbers, "█" * round(BAR_WIDTH * share))
    console.print(table)
    if len(listed) < width:
        console.print(f"and {width - len(listed)} less probable classes")
    for name, label in LABELS.items():
        values = getattr(evaluation, name)
        if values is not None and float(values[row]) == float(values[row]):
            console.print(f"{label} {float(values[row]):.6g}")


def _listed(columns: dict[str, Tensor]) -> list[int]:
    """The classes to show: all of a short row, else the most probable."""
    *_, values = columns.values()
    if len(values) <= SHOWN_CLASSES:
        return list(range(len(values)))
    return [int(place) for place in values.topk(SHOWN_CLASSES).indices]
