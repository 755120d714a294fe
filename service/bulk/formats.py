"""Which files are read and written, by their suffixes."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from service.bulk.line_source import LineSource
from service.bulk.line_writer import LineWriter
from service.bulk.npy_source import npy_source
from service.bulk.piece import Item, Outcome, Source
from service.bulk.safetensors_source import safetensors_source
from service.bulk.spool import Spool
from service.bulk.tensor_writer import TensorWriter
from service.settings import Settings
from service.wire.field_places import Fields

ARROW = (".arrow", ".arrows", ".parquet")
TENSORS = (".npy", ".npz", ".safetensors")
LINES = ".jsonl"

INPUTS = (".npy", ".safetensors", *ARROW, LINES)
"""What is read some rows at a time."""

OUTPUTS = (*TENSORS, *ARROW, LINES)
"""What is written some rows at a time."""


class Writer(Protocol):
    """Writes answers to a spool, as the format of a file wants them."""

    def add(self, item: Item, outcome: Outcome) -> None:
        """Writes what became of an item.

        Raises:
            ProbmapError: it has no answer, and the format has no place for an error.
            ValueError: the format cannot hold the answer.
        """

    def finished(self) -> Path:
        """A whole file of what was written, in the spool's folder."""


def source_of(
    path: Path,
    merged: Callable[[Fields], Fields],
    chosen: list[str] | None,
    settings: Settings,
    *,
    batch_rows: int | None,
    is_table: bool,
) -> Source:
    """The input in a file.

    Args:
        path: of the file, whose suffix is one of INPUTS.
        merged: what is asked, given the fields that the file, or a line of it, has.
        chosen: the columns, or tensors, beside the logits that are fields; None: all.
        settings: the limits.
        batch_rows: the rows of a piece (a count); None: as suits them.
        is_table: whether all answers must have the same outputs.

    Raises:
        ProbmapError: what is asked cannot be.
        ValueError: the file is not what its suffix says, or needs a package that is not there.
        OSError: it cannot be read.
    """
    if path.suffix == ".npy":
        return npy_source(path, merged({}), settings, batch_rows)
    if path.suffix == ".safetensors":
        return safetensors_source(path, merged, chosen, settings, batch_rows)
    if path.suffix == LINES:
        return LineSource(path, merged, settings, is_table=is_table)
    need("pyarrow", "arrow", f"a {path.suffix} file")
    from service.bulk.arrow_source import ArrowSource

    return ArrowSource(path, merged, chosen, settings, batch_rows)


def writer_of(suffix: str, spool: Spool, source: Source, settings: Settings) -> Writer:
    """The writer of a file with a suffix that is one of OUTPUTS.

    Raises:
        ValueError: the format cannot hold what is asked.
        ProbmapError: as ValueError.
    """
    if suffix == LINES:
        return LineWriter(spool, source, settings)
    if suffix in TENSORS:
        return TensorWriter(spool, source, suffix)
    from service.bulk.arrow_writer import ArrowWriter

    return ArrowWriter(spool, source, suffix)


def need(package: str, extra: str, what: str) -> None:
    """Raises ValueError, which names the extra to install, where a package is not there."""
    try:
        importlib.import_module(package)
    except ImportError:
        raise ValueError(f"{what} needs {package}; pip install 'probmap[{extra}]'") from None
