"""Logits in a .safetensors file, laid out like a request of the safetensors wire."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

from torch import Tensor

from schemas.errors import InvalidRequest
from service.bulk.array_source import (
    LOGITS,
    ArraySource,
    Column,
    check_classes,
    is_by_row,
    listed_by_row,
)
from service.settings import Settings
from service.wire.field_places import Fields
from service.wire.number_arrays import parse
from service.wire.safetensors_decode import REQUEST
from service.wire.safetensors_header import LENGTH_BYTES, Entry, read_header


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
    check_classes(path, rows, classes)
    missing = [name for name in chosen or () if name not in entries]
    if missing:
        raise ValueError(f"{path} has no tensor {missing[0]!r}; it has {', '.join(entries)}")
    names = [name for name in entries if chosen is None or name in (LOGITS, *chosen)]
    fields = deepcopy(merged(document))
    columns = {name: _stored(path, data, name, entries[name], rows) for name in names}
    if len(logits.shape) == 1:
        columns[LOGITS] = _stored(path, data, LOGITS, _as_row(logits), 1)
    listed = listed_by_row(fields, rows)
    return ArraySource((rows, classes), {**columns, **listed}, fields, settings, batch_rows)


def _as_row(entry: Entry) -> Entry:
    return Entry(entry.dtype, (1, *entry.shape), entry.start, entry.stop)


def _stored(path: Path, data: int, name: str, entry: Entry, rows: int) -> Column:
    """A tensor of a file whose data begin at `data`, of which only what is asked for is read."""
    by_row = name == LOGITS or is_by_row(name, len(entry.shape))
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
