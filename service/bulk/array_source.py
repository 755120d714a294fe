"""Logits in an array of a file, of which only the rows of a piece are in memory."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mappings.parameters import Parameters
from mappings.registry import MAPPINGS, PROCESSORS
from schemas.errors import InvalidRequest
from service.bulk.piece import AskedOfRows, Item, Piece, of_rows, rows_at_once
from service.engine.job import Job
from service.settings import Settings
from service.wire.field_places import Fields
from service.wire.json_decode import job_with
from service.wire.jsonl import taken_operation
from service.wire.safetensors_fields import add_tensors

LOGITS = "logits"

Column = Callable[[int, int], Tensor]
"""Reads the values of rows start (included) to stop (excluded); or of all rows, whichever."""


class ArraySource:
    """Rows of equal length, with values a row for some fields; see service.bulk.piece.Source."""

    has_lines = False

    def __init__(
        self,
        shape: tuple[int, int],
        columns: dict[str, Column],
        fields: Fields,
        settings: Settings,
        batch_rows: int | None,
    ) -> None:
        """Checks what is asked, on the first row.

        Args:
            shape: rows and classes (a count each).
            columns: of the logits, and of the fields that have a value a row.
            fields: the others, as JSON has them.
            settings: the limits.
            batch_rows: the rows of a piece (a count); None: as suits them.

        Raises:
            ProbmapError: the fields ask for what cannot be.
        """
        self.rows, self._classes = shape
        self._columns = columns
        self._fields = fields
        self._settings = settings
        self._model = taken_operation(fields)
        first = self._job(0, min(1, self.rows))
        names = tuple(name for name in columns if name != LOGITS)
        classes = max(1, self._classes)
        self.asked = AskedOfRows(first.request, first.wanted.dtype, classes, names)
        self._step = rows_at_once(first.request, classes, batch_rows)

    def pieces(self, first: int) -> Iterator[Piece]:
        """The pieces from the one at place `first` on."""
        # An input without rows has one piece, by which its answer gets its shape.
        for start in range(first * self._step, max(1, self.rows), self._step):
            stop = min(start + self._step, self.rows)
            with of_rows(start, stop):
                job = self._job(start, stop)
            yield Piece([Item(start, None, job)], stop / max(1, self.rows))

    def beginning(self, rows: int | None) -> Job:
        """The first rows as one job."""
        return self._job(0, self.rows if rows is None else min(rows, self.rows))

    def _job(self, start: int, stop: int) -> Job:
        fields = deepcopy(self._fields)
        values = {name: column(start, stop) for name, column in self._columns.items()}
        logits = values.pop(LOGITS)
        if not self._classes:
            logits = logits.new_empty(0, 1)
        add_tensors(fields, values, self._model, [logits.shape[1]] * len(logits))
        return job_with(logits, None, fields, self._model, self._settings)


def check_classes(path: Path, rows: int, classes: int) -> None:
    """Raises ValueError when a file has rows of no class."""
    if rows and not classes:
        raise ValueError(f"{path} has rows of no class; give at least 1 logit a row")


def listed_by_row(fields: Fields, rows: int) -> dict[str, Column]:
    """Takes the lists of one value a row out of the fields, as columns by their places."""
    mapping = fields.get("mapping")
    holders = [("", fields)]
    if isinstance(mapping, dict):
        holders.append(("mapping.", mapping))
    chain = fields.get("processors")
    for place, entry in enumerate(chain if isinstance(chain, list) else ()):
        if isinstance(entry, dict):
            holders.append((f"processors.{place}.", entry))
    found: dict[str, Column] = {}
    for prefix, holder in holders:
        for name, value in list(holder.items()):
            if not isinstance(value, list | np.ndarray):
                continue
            array = _numbers(value)
            if array is None or not is_by_row(name, array.ndim):
                continue
            if len(array) != rows:
                message = f"{name} has {len(array)} values for {rows} rows; give one, or one a row"
                raise InvalidRequest.at((name,), message)
            del holder[name]
            found[prefix + name] = _held(array)
    return found


def _numbers(value: Any) -> Any:
    """An array of numbers; None where a list holds anything else, or lists of many lengths."""
    if isinstance(value, list) and any(isinstance(entry, str | dict) for entry in value):
        return None
    try:
        array = np.asarray(value)
    except ValueError:
        return None
    return array if array.dtype.kind in "iuf" and array.ndim in (1, 2) else None


def _held(array: Any) -> Column:
    tensor = torch.from_numpy(np.array(array))
    return lambda start, stop: tensor[start:stop]


def is_by_row(name: str, dimensions: int) -> bool:
    """Whether an array of so many dimensions has one value, or one list of them, for each row."""
    kinds: list[type[Parameters]] = [*MAPPINGS.values(), *PROCESSORS.values()]
    listing = {
        field for kind in kinds for field in (*kind.per_class_fields(), *kind.per_row_list_fields())
    }
    return dimensions == 2 or (dimensions == 1 and name.rpartition(".")[2] not in listing)
