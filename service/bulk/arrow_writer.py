"""Answers as record batches, in an Arrow file, an Arrow stream or a Parquet file."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mappings.errors import ProbmapError
from schemas.errors import InvalidRequest
from service.bulk.piece import Item, Outcome, Source, rows_of
from service.bulk.spool import Spool
from service.engine.job import Job
from service.wire.arrow_answer import answer_batch, answer_schema, failed_batch
from service.wire.arrow_framing import CONTINUATION
from service.wire.arrow_request import OTHER_WIRES

STREAM = "stream"

FINISHED = "finished"

GROUP_BYTES = 1 << 26
"""About how large a row group of a Parquet file is, before it is compressed (bytes)."""


class ArrowWriter:
    """Writes batches like those of /v1/stream; see service.bulk.writers.Writer."""

    def __init__(self, spool: Spool, source: Source, suffix: str) -> None:
        """Begins the stream.

        Raises:
            InvalidRequest: something is asked for that no column can hold.
        """
        lost = [name for name in OTHER_WIRES if name in source.asked.request.wanted()]
        if lost:
            message = f"{lost[0]} fits no column; write .jsonl, .npz or .safetensors"
            raise InvalidRequest.at(("outputs",), message)
        self._spool = spool
        self._suffix = suffix
        schema = answer_schema(source.asked)
        # Lines may name a mapping each.
        self._schema = schema.remove_metadata() if source.has_lines else schema
        if not spool.size(STREAM):
            spool.append(STREAM, [memoryview(self._schema.serialize())])

    def add(self, item: Item, outcome: Outcome) -> None:
        """Writes the batch of an item."""
        if isinstance(outcome, ProbmapError):
            batch = failed_batch(rows_of(item), outcome, "", self._schema)
        else:
            assert isinstance(item.job, Job)
            batch = answer_batch(item.job, outcome, self._schema)
        self._spool.append(STREAM, [memoryview(batch.serialize())])

    def finished(self) -> Path:
        """The file of all batches."""
        stream = self._spool.folder / STREAM
        if self._suffix == ".arrows":
            self._spool.append(STREAM, [CONTINUATION + bytes(4)])
            self._spool.close_files()
            return stream
        self._spool.close_files()
        whole = self._spool.folder / FINISHED
        with pa.OSFile(str(stream)) as source, pa.ipc.open_stream(source) as reader:
            if self._suffix == ".parquet":
                _write_parquet(reader, whole)
            else:
                with pa.ipc.new_file(str(whole), reader.schema) as writer:
                    for batch in reader:
                        writer.write_batch(batch)
        return whole


def _write_parquet(reader: Any, path: Path) -> None:
    """Writes batches as row groups of some size, whatever their own."""
    with pq.ParquetWriter(path, reader.schema) as writer:
        group: list[Any] = []
        for batch in reader:
            group.append(batch)
            if sum(one.nbytes for one in group) >= GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(group), row_group_size=1 << 40)
                group = []
        if group:
            writer.write_table(pa.Table.from_batches(group), row_group_size=1 << 40)
