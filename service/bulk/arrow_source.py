"""Logits in Arrow and Parquet files, a record batch or a part of one at a time."""

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from schemas.errors import InvalidRequest
from service.bulk.piece import Item, Piece, of_rows, rows_at_once
from service.engine.job import Job
from service.settings import Settings
from service.wire.arrow_columns import is_list
from service.wire.arrow_framing import FILE_MAGIC
from service.wire.arrow_request import LOGITS, REQUEST, ArrowRequest
from service.wire.field_places import Fields
from service.wire.number_arrays import parse

READ_ROWS = 1 << 10
"""Rows of a Parquet file that are decoded at a time, where they differ in length (a count)."""

Batches = Iterator[tuple[Any, float]]
"""Record batches, each with how much of the file lies before its end, in [0, 1]."""


class ArrowSource:
    """Rows of a column `logits`, with columns for some fields; see service.bulk.piece.Source."""

    has_lines = False

    def __init__(
        self,
        path: Path,
        merged: Callable[[Fields], Fields],
        chosen: list[str] | None,
        settings: Settings,
        batch_rows: int | None,
    ) -> None:
        """Reads the schema.

        Args:
            path: of a Parquet file (.parquet), or of an Arrow file or stream.
            merged: what is asked, given the fields in the schema's metadata.
            chosen: the columns beside the logits that are fields; None: all.
            settings: the limits.
            batch_rows: the rows of a piece (a count); None: as suits them.

        Raises:
            ProbmapError: the schema asks for what cannot be.
            ValueError: this is no such file.
            OSError: it cannot be read.
        """
        self._path = path
        self._file = _ParquetFile(path) if path.suffix == ".parquet" else _arrow_file(path)
        self.rows = self._file.rows
        schema = self._file.schema
        names = schema.names if chosen is None else [LOGITS, *chosen]
        missing = [name for name in names if name not in schema.names]
        if missing:
            raise ValueError(
                f"{path} has no column {missing[0]!r}; it has {', '.join(schema.names)}"
            )
        fields = merged(_document(schema, settings))
        _refuse_lists(fields)
        text = orjson.dumps(fields, option=orjson.OPT_SERIALIZE_NUMPY)
        self._schema = pa.schema([schema.field(name) for name in names])
        asked = self._schema.with_metadata({REQUEST: text})
        self.asked = ArrowRequest(bytearray(asked.serialize()), (), settings)
        self._names = names
        self._batch_rows = batch_rows

    def pieces(self, first: int) -> Iterator[Piece]:
        """The pieces from the one at place `first` on; those before are read, but not looked at."""
        for start, part, fraction in islice(self._parts(), first, None):
            stop = start + part.num_rows
            with of_rows(start, stop):
                job = self.asked.job(part)
            yield Piece([Item(start, None, job)], fraction)

    def beginning(self, rows: int | None) -> Job:
        """The first rows as one job."""
        taken, count = [], 0
        for batch, _ in self._file.batches(self._names, self._step(1)):
            taken.append(batch)
            count += batch.num_rows
            if rows is not None and count >= rows:
                break
        table = pa.Table.from_batches(taken, self._schema)
        batches = table.slice(0, rows).combine_chunks().to_batches()
        return self.asked.job(batches[0] if batches else _no_batch(self._schema))

    def _parts(self) -> Iterator[tuple[int, Any, float]]:
        """Batches in parts that are small enough, each with its first row's place."""
        at = 0
        for batch, fraction in self._file.batches(self._names, self._step(1)):
            step = self._step(_longest(batch.column(LOGITS)))
            for start in range(0, batch.num_rows, step):
                part = batch.slice(start, step)
                yield at + start, part, fraction
            at += batch.num_rows
        if at == 0:
            yield 0, _no_batch(self._schema), 1.0

    def _step(self, longest: int) -> int:
        classes = self.asked.classes or longest
        return rows_at_once(self.asked.request, max(1, classes), self._batch_rows)


class _ParquetFile:
    """A Parquet file, decoded some rows at a time."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = pq.ParquetFile(path, pre_buffer=False)
        except pa.ArrowException as error:
            raise ValueError(f"{path} is no Parquet file: {error}") from None
        self.schema = self._file.schema_arrow
        self.rows: int | None = self._file.metadata.num_rows

    def batches(self, names: list[str], step: int) -> Batches:
        """The batches of some columns, of at most so many rows."""
        done = 0
        size = min(step, READ_ROWS)
        for batch in self._file.iter_batches(batch_size=size, columns=names):
            done += batch.num_rows
            yield _plain(batch, names), done / (self.rows or 1)


class _ArrowFile:
    """An Arrow file with its table of batches."""

    def __init__(self, path: Path) -> None:
        self._file = pa.ipc.open_file(pa.OSFile(str(path)))
        self.schema = self._file.schema
        self.rows: int | None = None

    def batches(self, names: list[str], _: int) -> Batches:
        """The batches as they were written."""
        count = self._file.num_record_batches
        for place in range(count):
            yield _plain(self._file.get_batch(place), names), (place + 1) / count


class _ArrowStream:
    """An Arrow stream in a file."""

    rows: int | None = None

    def __init__(self, path: Path) -> None:
        self._path = path
        with pa.ipc.open_stream(pa.OSFile(str(path))) as reader:
            self.schema = reader.schema

    def batches(self, names: list[str], _: int) -> Batches:
        """The batches as they were written."""
        source = pa.OSFile(str(self._path))
        size = source.size()
        for batch in pa.ipc.open_stream(source):
            yield _plain(batch, names), source.tell() / size


def _plain(batch: Any, names: list[str]) -> Any:
    """Some columns of a batch, without what its schema says beside their types."""
    return batch.select(names).replace_schema_metadata(None)


def _arrow_file(path: Path) -> _ArrowFile | _ArrowStream:
    with path.open("rb") as file:
        is_file = file.read(len(FILE_MAGIC)) == FILE_MAGIC
    try:
        return _ArrowFile(path) if is_file else _ArrowStream(path)
    except pa.ArrowException as error:
        raise ValueError(f"{path} is no Arrow file or stream: {error}") from None


def _document(schema: Any, settings: Settings) -> Fields:
    """The fields in a schema's metadata."""
    text = (schema.metadata or {}).get(REQUEST.encode(), b"{}")
    document = parse(bytearray(text), settings)
    if not isinstance(document, dict):
        message = f'the schema\'s metadata "{REQUEST}" should be an object: {{"mapping": …}}'
        raise InvalidRequest.at((REQUEST,), message)
    return document


def _refuse_lists(fields: Fields) -> None:
    """Raises the error of a parameter that is given a row at a time outside its column."""
    for name, value in fields.items():
        if isinstance(value, list) and name not in ("outputs", "processors", "weights"):
            message = f"{name} is given for each row; make it a column of the file"
            raise InvalidRequest.at((name,), message)


def _longest(column: Any) -> int:
    """The most classes of any row of the logits."""
    if not is_list(column.type) or pa.types.is_fixed_size_list(column.type) or not len(column):
        return 1
    return max(1, int(np.diff(column.offsets.to_numpy()).max()))


def _no_batch(schema: Any) -> Any:
    return pa.record_batch([pa.array([], kind) for kind in schema.types], schema=schema)
