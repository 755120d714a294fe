"""A bar on the terminal; nothing where there is none."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

Shown: TypeAlias = Callable[[int, float, float], None]
"""Takes the rows that are done, the rows a second, and how much of the input that is, in [0, 1]."""


@contextmanager
def progress(name: str) -> Iterator[Shown]:
    """Shows rows, rows a second and the time left on the standard error while it is a terminal."""
    if not sys.stderr.isatty():
        yield lambda rows, rate, fraction: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[rows]:,} rows"),
        TextColumn("{task.fields[rate]:,.0f} rows/s"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(name, total=1.0, rows=0, rate=0.0)

        def show(rows: int, rate: float, fraction: float) -> None:
            bar.update(task, completed=fraction, rows=rows, rate=rate)

        yield show
