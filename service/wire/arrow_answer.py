"""Evaluations as the columns of Arrow batches."""

from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import torch
from torch import Tensor

from mappings.errors import ProbmapError
from mappings.evaluation import OUTPUTS, VALID, Evaluation
from mappings.support import Support
from schemas.request import SampleRequest
from service.engine.job import Job
from service.errors import problem
from service.wire.arrow_request import REQUEST
from service.wire.asked import Asked

ERROR = "error"
"""The column that says why a batch has no answer."""

DENSE = ("gradient", "probabilities", "log_probabilities")
"""Outputs of one number a class."""

DRAWN = ("tokens", "token_log_probabilities")
"""Outputs of one value a sample."""


def answer_schema(asked: Asked) -> Any:
    """The schema of a stream's answers, the same for all batches."""
    request = asked.request
    number = pa.float64() if asked.dtype == torch.float64 else pa.float32()
    dense = pa.list_(number) if asked.classes is None else pa.list_(number, asked.classes)
    kinds: dict[str, Any] = {}
    for name in OUTPUTS:
        if name not in request.wanted():
            continue
        if name == "support":
            kinds["support_indices"] = pa.list_(pa.int32())
            kinds["support_probabilities"] = pa.list_(number)
            kinds["support_log_probabilities"] = pa.list_(number)
            if request.support_limit is not None:
                kinds["support_mass"] = number
                kinds["support_truncated"] = pa.bool_()
        elif name in DENSE:
            kinds[name] = dense
        elif name in DRAWN and isinstance(request, SampleRequest):
            kinds[name] = pa.list_(pa.int64() if name == "tokens" else number, request.samples)
        else:
            kinds[name] = pa.int64() if name == "support_size" else number
    if isinstance(request, SampleRequest):
        kinds["seed"] = pa.uint64()
    if request.invalid_rows == "report":
        kinds["status"] = pa.string()
    kinds[ERROR] = pa.string()
    mapping = request.mapping
    without = {*mapping.per_class_fields(), *asked.by_row}
    told = orjson.dumps({"mapping": mapping.model_dump(exclude=without)})
    return pa.schema(list(kinds.items()), metadata={REQUEST: told})


def answer_batch(job: Job, evaluation: Evaluation, schema: Any) -> Any:
    """The batch of an answer, whose numbers are not copied where its rows are equally long."""
    rows, request = job.rows, job.request
    is_valid = np.array([text == VALID for text in evaluation.status], bool)
    valid = None if is_valid.all() else pa.py_buffer(np.packbits(is_valid, bitorder="little"))
    columns: dict[str, Any] = {}
    for name, tensor in _tensors(evaluation):
        if name not in schema.names:
            continue
        kind = schema.field(name).type
        if isinstance(evaluation.support, Support) and pa.types.is_list(kind) and tensor.ndim == 1:
            columns[name] = _lists(tensor, evaluation.support.offsets, kind, valid, rows)
        elif pa.types.is_list(kind):
            flat, offsets = _joined(tensor, job.lengths)
            columns[name] = _lists(flat, offsets, kind, valid, rows)
        elif pa.types.is_fixed_size_list(kind):
            values = _array(tensor.reshape(-1), kind.value_type, None)
            columns[name] = pa.Array.from_buffers(kind, rows, [valid], children=[values])
        else:
            columns[name] = _array(tensor, kind, valid)
    if isinstance(request, SampleRequest):
        seeds = request.seed if isinstance(request.seed, list) else [request.seed] * rows
        columns["seed"] = pa.array(seeds, pa.uint64())
    columns["status"] = evaluation.status
    columns[ERROR] = pa.nulls(rows, pa.string())
    arrays = [columns[name] for name in schema.names]
    return pa.record_batch(arrays, schema=schema)


def failed_batch(rows: int, error: ProbmapError, request_id: str, schema: Any) -> Any:
    """The batch of a request without an answer: all null but what went wrong.

    The whole problem document is in the first row, its code in all, so that many rows do not
    make it large.
    """
    document = orjson.dumps(problem(error, request_id)).decode()
    code = orjson.dumps({"code": error.code}).decode()
    told = [document, *[code] * (rows - 1)]
    # Zeros that nobody has written to take no memory, however many.
    zeros = pa.py_buffer(np.zeros(16 + 8 * rows * _widest(schema), np.uint8))
    columns = [
        pa.array(told, pa.string()) if name == ERROR else _nulls(kind, rows, zeros, zeros)
        for name, kind in zip(schema.names, schema.types, strict=True)
    ]
    return pa.record_batch(columns, schema=schema)


def _tensors(evaluation: Evaluation) -> list[tuple[str, Tensor]]:
    """Every tensor of an evaluation by its column's name."""
    named: list[tuple[str, Any]] = [(name, getattr(evaluation, name)) for name in OUTPUTS]
    support = evaluation.support
    if support is not None:
        parts = ("indices", "probabilities", "log_probabilities", "mass", "truncated")
        named += [(f"support_{part}", getattr(support, part)) for part in parts]
    return [(name, value) for name, value in named if isinstance(value, Tensor)]


def _array(tensor: Tensor, kind: Any, valid: Any) -> Any:
    """(values,) as an array of its own memory."""
    array = tensor.contiguous().numpy()
    if pa.types.is_boolean(kind):
        array = np.packbits(array, bitorder="little")
    else:
        array = array.astype(kind.to_pandas_dtype(), copy=False)
    return pa.Array.from_buffers(kind, len(tensor), [valid, pa.py_buffer(array)])


def _lists(flat: Tensor, offsets: Tensor, kind: Any, valid: Any, rows: int) -> Any:
    starts = pa.py_buffer(offsets.to(torch.int32).numpy())
    values = _array(flat, kind.value_type, None)
    return pa.Array.from_buffers(kind, rows, [valid, starts], children=[values])


def _joined(tensor: Tensor, lengths: list[int] | None) -> tuple[Tensor, Tensor]:
    """Rows without what is behind their ends, one after the other, and where each begins."""
    rows, longest = tensor.shape
    if lengths is None:
        return tensor.reshape(-1), torch.arange(rows + 1) * longest
    ends = torch.tensor(lengths)
    inside = torch.arange(longest) < ends.unsqueeze(-1)
    return tensor[inside], torch.cat([ends.new_zeros(1), ends.cumsum(0)])


def _widest(schema: Any) -> int:
    """The most values that a row has in any column (a count)."""
    fixed: list[int] = [
        kind.list_size for kind in schema.types if pa.types.is_fixed_size_list(kind)
    ]
    return max([1, *fixed])


def _nulls(kind: Any, rows: int, valid: Any, zeros: Any) -> Any:
    """So many values that are null, or where `valid` is None, zero."""
    count = rows if valid is not None else 0
    if pa.types.is_fixed_size_list(kind):
        inner = _nulls(kind.value_type, rows * kind.list_size, None, zeros)
        return pa.Array.from_buffers(kind, rows, [valid], count, children=[inner])
    if pa.types.is_list(kind):
        inner = _nulls(kind.value_type, 0, None, zeros)
        return pa.Array.from_buffers(kind, rows, [valid, zeros], count, children=[inner])
    # Texts have offsets, and behind them nothing.
    buffers = [valid, zeros, zeros] if pa.types.is_string(kind) else [valid, zeros]
    return pa.Array.from_buffers(kind, rows, buffers, count)
