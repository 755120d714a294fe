"""The safetensors wire's way out: evaluations to bodies, whose tensors are not copied."""

from collections.abc import Iterator

import orjson
import torch
from torch import Tensor

from mappings.evaluation import OUTPUTS, Evaluation, JacobianAnswer
from mappings.support import Support
from schemas.request import SampleRequest
from service.engine.job import Job
from service.settings import Settings
from service.wire.safetensors_header import DTYPES, LENGTH_BYTES, METADATA

ANSWER = "answer"
"""The metadata entry that holds what no tensor does, as JSON."""

NAMES = {dtype: name for name, dtype in DTYPES.items()}


def written_bytes(evaluation: Evaluation) -> int:
    """About how much of an answer's body is not the evaluation's own memory (bytes)."""
    found = evaluation.jacobian
    if found is None or found.indices is None or found.blocks is None:
        return 0
    return sum(part.nbytes for part in (*found.indices, *found.blocks))


def encode(job: Job, evaluation: Evaluation, settings: Settings) -> list[bytes | memoryview]:
    """The body of an answer, in parts: its header, then the tensors' own memory."""
    # The widest first: each then lies where its numbers can be read in place.
    tensors = sorted(named_tensors(job, evaluation), key=lambda named: -named[1].itemsize)
    header: dict[str, object] = {
        METADATA: {ANSWER: orjson.dumps(_answer(job, evaluation)).decode()}
    }
    start = 0
    for name, tensor in tensors:
        stop = start + tensor.nbytes
        header[name] = {
            "dtype": NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, stop],
        }
        start = stop
    text = orjson.dumps(header)
    text += b" " * (-len(text) % 8)
    parts: list[bytes | memoryview] = [len(text).to_bytes(LENGTH_BYTES, "little") + text]
    # A memoryview of nothing cannot be taken as bytes.
    whole = [tensor.contiguous().numpy() for _, tensor in tensors if tensor.numel()]
    parts += [array.data.cast("B") for array in whole]
    return parts


def named_tensors(job: Job, evaluation: Evaluation) -> Iterator[tuple[str, Tensor]]:
    """The tensors of an answer, in the order of the outputs."""
    if job.lengths is not None:
        yield "lengths", torch.tensor(job.lengths)
    for name in OUTPUTS:
        value = getattr(evaluation, name)
        if isinstance(value, Tensor):
            yield name, value
        elif isinstance(value, Support):
            yield from _support(value, is_cut=job.request.support_limit is not None)
        elif isinstance(value, JacobianAnswer):
            yield from _jacobian(value)
        elif value is not None:
            for parameter, slopes in value.items():
                yield f"{name}_{parameter}", slopes


def _answer(job: Job, evaluation: Evaluation) -> dict[str, object]:
    """What an answer says beside its numbers, as in JSON."""
    request, mapping = job.request, job.request.mapping
    answer: dict[str, object] = {
        "mapping": mapping.model_dump(exclude=set(mapping.per_class_fields())),
        "rows": job.rows,
    }
    if request.invalid_rows == "report":
        answer["status"] = evaluation.status
    if isinstance(request, SampleRequest):
        answer["seed"] = request.seed
    return answer


def _support(support: Support, *, is_cut: bool) -> Iterator[tuple[str, Tensor]]:
    yield "support_offsets", support.offsets
    yield "support_indices", support.indices
    yield "support_probabilities", support.probabilities
    yield "support_log_probabilities", support.log_probabilities
    if is_cut:
        yield "support_mass", support.mass
        yield "support_truncated", support.truncated


def _jacobian(jacobian: JacobianAnswer) -> Iterator[tuple[str, Tensor]]:
    whole = jacobian.matrix if jacobian.product is None else jacobian.product
    if whole is not None:
        yield "jacobian", whole
    for name in ("diagonal", "left", "right"):
        part = getattr(jacobian, name)
        if part is not None:
            yield f"jacobian_{name}", part
    if jacobian.indices is None or jacobian.blocks is None:
        return
    sizes = [len(ids) for ids in jacobian.indices]
    yield "jacobian_offsets", torch.tensor([0, *sizes]).cumsum(0)
    for name, parts in (("indices", jacobian.indices), ("values", jacobian.blocks)):
        flat = [part.reshape(-1) for part in parts]
        yield f"jacobian_{name}", torch.cat(flat) if flat else torch.zeros(0)
