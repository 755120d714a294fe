"""Logits in .npy and .safetensors files, of which only the rows of a piece are in memory."""

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
from service.wire.number_arrays import parse
from service.wire.safetensors_decode import REQUEST
from service.wire.safetensors_fields import add_tensors
from service.wire.safetensors_header import LENGTH_BYTES, Entry, read_header

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
        self.asked = AskedOfRows(first.request, first.wanted().dtype, classes, names)
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


def npy_source(
    path: Path, fields: Fields, settings: Settings, batch_rows: int | None
) -> ArraySource:
    """The rows of a .npy file, rows × classes or one row; fields may list one value a row.

    Raises:
        ValueError: the file holds no numbers, or not in rows.
        OSError: it cannot be read.
    """

    def opened() -> Any:
        # Opened for each piece anew: what a map has read counts as memory of this process.
        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError):
            # What numpy says of it may be an invitation to unpickle it.
            raise ValueError(f"{path} is not a whole .npy file of numbers") from None
        if not isinstance(array, np.ndarray) or array.ndim not in (1, 2):
            raise ValueError(f"{path} should hold one array of numbers, rows × classes or one row")
        if array.dtype.kind not in "fiu":
            raise ValueError(
                f"{path} holds {array.dtype}; it should hold floats or integers (for bfloat16, "
                "write .safetensors)"
            )
        return np.atleast_2d(array)

    def logits(start: int, stop: int) -> Tensor:
        part = opened()[start:stop]
        is_kept = part.dtype.kind == "f" and part.dtype.itemsize <= 8
        kind = part.dtype.newbyteorder("=") if is_kept else np.dtype(np.float64)
        return torch.from_numpy(np.array(part, kind, order="C"))

    shape = opened().shape
    _check_classes(path, *shape)
    fields = deepcopy(fields)
    columns = {LOGITS: logits, **_listed_by_row(fields, shape[0])}
    return ArraySource(shape, columns, fields, settings, batch_rows)


def safetensors_source(
    path: Path,
    merged: Callable[[Fields], Fields],
    chosen: list[str] | None,
    settings: Settings,
    batch_rows: int | None,
) -> ArraySource:
    """The rows of a .safetensors file, laid out like a request of the safetensors wire.

    Args:
        path: of the file: the tensor `logits`, others for fields of a value a row; in the
            metadata entry `request`, if there is one, more fields as JSON.
        merged: what is asked, given the fields of the file.
        chosen: the tensors beside the logits that are fields; None: all.
        settings: the limits.
        batch_rows: the rows of a piece (a count); None: as suits them.

    Raises:
        ProbmapError: the file is not safetensors, or asks for what cannot be.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        size = int.from_bytes(file.read(LENGTH_BYTES), "little")
        data, length = LENGTH_BYTES + size, path.stat().st_size
        if data > length:
            raise ValueError(f"{path} is no safetensors file: its header ends behind the file")
        entries, metadata = read_header(file.read(size), length - data)
    document = parse(bytearray(metadata.get(REQUEST, "{}").encode()), settings)
    if not isinstance(document, dict):
        raise InvalidRequest.at((REQUEST,), f'the metadata entry "{REQUEST}" should be an object')
    logits = entries.get(LOGITS)
    if logits is None or len(logits.shape) not in (1, 2) or not logits.dtype.is_floating_point:
        raise ValueError(
            f"{path} should have a tensor logits of F16, BF16, F32 or F64, rows × classes or one "
            "row"
        )
    rows, classes = logits.shape if len(logits.shape) == 2 else (1, *logits.shape)
    _check_classes(path, rows, classes)
    missing = [name for name in chosen or () if name not in entries]
    if missing:
        raise ValueError(f"{path} has no tensor {missing[0]!r}; it has {', '.join(entries)}")
    names = [name for name in entries if chosen is None or name in (LOGITS, *chosen)]
    fields = deepcopy(merged(document))
    columns = {name: _stored(path, data, name, entries[name], rows) for name in names}
    if len(logits.shape) == 1:
        columns[LOGITS] = _stored(path, data, LOGITS, _as_row(logits), 1)
    listed = _listed_by_row(fields, rows)
    return ArraySource((rows, classes), {**columns, **listed}, fields, settings, batch_rows)


def _check_classes(path: Path, rows: int, classes: int) -> None:
    if rows and not classes:
        raise ValueError(f"{path} has rows of no class; give at least 1 logit a row")


def _as_row(entry: Entry) -> Entry:
    return Entry(entry.dtype, (1, *entry.shape), entry.start, entry.stop)


def _stored(path: Path, data: int, name: str, entry: Entry, rows: int) -> Column:
    """A tensor of a file whose data begin at `data`, of which only what is asked for is read."""
    by_row = name == LOGITS or _is_by_row(name, len(entry.shape))
    if by_row and entry.shape[0] != rows:
        raise InvalidRequest.at(
            (name,), f"{name} has {entry.shape[0]} values for {rows} rows; give one, or one a row"
        )
    row_bytes = (entry.stop - entry.start) // rows if by_row and rows else 0

    def read(start: int, stop: int) -> Tensor:
        first, last = 0, entry.stop - entry.start
        shape = entry.shape
        if by_row:
            first, last = start * row_bytes, stop * row_bytes
            shape = (stop - start, *shape[1:])
        with path.open("rb") as file:
            file.seek(data + entry.start + first)
            body = bytearray(file.read(last - first))
        if len(body) < last - first:
            raise ValueError(f"{path} has become shorter while it was read")
        return Entry(entry.dtype, shape, 0, len(body)).view(body, 0)

    return read


def _listed_by_row(fields: Fields, rows: int) -> dict[str, Column]:
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
            if array is None or not _is_by_row(name, array.ndim):
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


def _is_by_row(name: str, dimensions: int) -> bool:
    """Whether an array of so many dimensions has one value, or one list of them, for each row."""
    kinds: list[type[Parameters]] = [*MAPPINGS.values(), *PROCESSORS.values()]
    listing = {
        field for kind in kinds for field in (*kind.per_class_fields(), *kind.per_row_list_fields())
    }
    return dimensions == 2 or (dimensions == 1 and name.rpartition(".")[2] not in listing)
