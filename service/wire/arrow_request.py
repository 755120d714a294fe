"""What an Arrow stream asks for, known from its schema before any batch has come."""

import copy
from collections.abc import Mapping as Dict
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import torch

from schemas.errors import MAX_NAME, InvalidRequest, shortened
from service.engine.job import Job
from service.errors import MalformedBody
from service.settings import Settings
from service.wire.arrow_columns import DTYPES, is_list, is_number, read_logits, read_numbers
from service.wire.arrow_framing import PREFIX_BYTES, malformed, read_head
from service.wire.field_places import place_of
from service.wire.json_decode import job_with
from service.wire.jsonl import taken_operation
from service.wire.limits import check_logits
from service.wire.number_arrays import parse
from service.wire.numbers import Numbers

REQUEST = "probmap"
"""The key of the schema's metadata that holds the request's fields, as JSON."""

LOGITS = "logits"

MAX_COLUMNS = 256
"""The most columns of a stream (a count)."""

OTHER_WIRES = "jacobian", "parameter_gradients"
"""Outputs that no column can hold."""


Query = Sequence[tuple[str, str]]
"""Request fields from a URL, in order."""


class ArrowRequest:
    """The request that every batch of a stream is.

    Attributes:
        schema: of its batches.
        classes: of every row (a count); None: the rows are lists, each as long as it is.
        request: what is asked of a batch, as of one without rows.
        dtype: of the answers.
        by_row: the fields that have a column.
    """

    def __init__(self, message: bytearray, query: Query, settings: Settings) -> None:
        """Reads the message of a schema.

        Args:
            message: with prefix and metadata.
            query: request fields from the URL, as JSON or as plain text.
            settings: the limits.

        Raises:
            ProbmapError: the schema is none, or asks for what cannot be.
        """
        self.schema = _schema(message)
        self._settings = settings
        kind = _logits_type(self.schema)
        fixed = pa.types.is_fixed_size_list(kind)
        self.classes: int | None = kind.list_size if fixed else None
        if self.classes is not None:
            check_logits(1, self.classes, settings)
        self._fields = _fields(self.schema.metadata, query, settings)
        self._model = taken_operation(self._fields)
        self.by_row = [name for name in self.schema.names if name != LOGITS]
        # What holds of a batch without rows holds of every batch.
        self._none = {name: _no_rows(name, self.schema.field(name).type) for name in self.by_row}
        none = torch.empty(0, self.classes or 1, dtype=DTYPES[kind.value_type])
        job = self._job(none, None, self._none)
        self.request, self.dtype = job.request, job.wanted.dtype
        lost = [name for name in OTHER_WIRES if name in self.request.wanted()]
        if lost:
            reason = f"{lost[0]} fits no column; ask for it as JSON or as safetensors"
            raise InvalidRequest.at(("outputs",), reason)

    def job(self, batch: Any) -> Job:
        """The job that a batch of the schema asks for."""
        logits, lengths = read_logits(batch.column(LOGITS), self._settings)
        columns = {name: read_numbers(batch.column(name), name) for name in self.by_row}
        return self._job(logits, lengths, columns if len(logits) else self._none)

    def _job(
        self, logits: torch.Tensor, lengths: list[int] | None, columns: Dict[str, Numbers]
    ) -> Job:
        fields = copy.deepcopy(self._fields)
        for name, numbers in columns.items():
            holder, loc = place_of(fields, name, self._model)
            holder[str(loc[-1])] = numbers
        return job_with(logits, lengths, fields, self._model, self._settings)


def _no_rows(name: str, kind: Any) -> Numbers:
    """What stands for a column in a batch without rows."""
    if is_list(kind) and name != "targets":
        # Lists of no row are none that a field could take; one list is for all rows.
        return read_numbers(pa.array(np.ones(1, kind.value_type.to_pandas_dtype())), name)
    return read_numbers(pa.array([], kind), name)


def _schema(message: bytearray) -> Any:
    """The schema in a message."""
    if read_head(message[PREFIX_BYTES:]).is_big_endian:
        raise malformed("its numbers are big-endian; write them little-endian")
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(message))
        names = [*schema.names]
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        raise malformed("its schema is broken") from None
    if len(names) > MAX_COLUMNS:
        raise malformed(f"it has more than {MAX_COLUMNS} columns")
    for place, name in enumerate(names):
        if name in names[:place]:
            raise malformed(f"the column {shortened(name)} comes twice")
        kind = schema.field(place).type
        if name != LOGITS and not is_number(kind.value_type if is_list(kind) else kind):
            reason = f"{shortened(name)} should be a column of numbers, or of lists of them"
            raise InvalidRequest.at((name[:MAX_NAME],), reason)
    return schema


def _logits_type(schema: Any) -> Any:
    """The type of the logits."""
    if LOGITS not in schema.names:
        raise InvalidRequest.at((LOGITS,), "the column logits is missing")
    kind = schema.field(LOGITS).type
    if not is_list(kind) or kind.value_type not in DTYPES:
        message = "logits should be a column of lists, or fixed-size lists, of float16, 32 or 64"
        raise InvalidRequest.at((LOGITS,), message)
    if pa.types.is_fixed_size_list(kind) and kind.list_size < 1:
        raise InvalidRequest.at((LOGITS,), "logits has no class; give at least 1 a row")
    return kind


def _fields(metadata: Dict[bytes, bytes] | None, query: Query, settings: Settings) -> Any:
    """The request's fields, from the schema's metadata and the URL."""
    text = (metadata or {}).get(REQUEST.encode(), b"{}")
    try:
        fields: Any = parse(bytearray(text), settings)
    except MalformedBody as error:
        reason = error.detail.removeprefix("the body is ")
        raise MalformedBody(f'the schema\'s metadata "{REQUEST}" are {reason}') from None
    if not isinstance(fields, dict):
        message = f'the schema\'s metadata "{REQUEST}" should be an object: {{"mapping": …}}'
        raise InvalidRequest.at((REQUEST,), message)
    for name, value in query:
        if name in fields:
            message = f"{shortened(name)} is given twice; give it once"
            raise InvalidRequest.at(("query", name[:MAX_NAME]), message)
        fields[name] = _value(value)
    if "mapping" not in fields:
        message = (
            f'mapping is missing; name one in the schema\'s metadata "{REQUEST}", which are JSON, '
            "or in the URL: ?mapping=softmax"
        )
        raise InvalidRequest.at(("mapping",), message)
    if LOGITS in fields:
        raise InvalidRequest.at((LOGITS,), "logits is a column; leave it out of the other fields")
    return fields


def _value(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
