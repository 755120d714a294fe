"""The JSON wire: bodies to jobs, evaluations to answers."""

import math
import secrets
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mappings.evaluation import OUTPUTS, VALID, Evaluation, JacobianAnswer
from mappings.support import Support
from schemas.errors import InvalidRequest
from schemas.request import Request, SampleRequest, read_request
from service.engine.job import Job
from service.errors import TooLarge
from service.settings import Settings
from service.wire.json_derivatives import write_gradients, write_jacobian
from service.wire.json_text import SLICE_NUMBERS, JsonText
from service.wire.number_arrays import parse
from service.wire.numbers import Numbers, numbers

MEDIA_TYPES = ("application/json",)
"""What a JSON route reads."""


MAX_DEPTH = 4
"""How deep in a request arrays can be of use (a count): in a processor, that is in a list."""


def decode(body: bytearray, model: type[Request], settings: Settings) -> Job:
    """The job that a JSON body asks for.

    Raises:
        ProbmapError: the body is not JSON, over a limit, or asks for what cannot be.
    """
    return job_of(parse(body, settings), model, settings)


def job_of(document: object, model: type[Request], settings: Settings) -> Job:
    """The job that a parsed JSON document asks for."""
    if not isinstance(document, dict):
        raise InvalidRequest.at((), 'the body should be an object: {"logits": …, "mapping": …}')
    if "logits" not in document:
        raise InvalidRequest.at(("logits",), "logits is missing; give one row, or rows of numbers")
    logits, lengths = _logits(numbers(document.pop("logits"), "logits", settings), settings)
    rows, longest = logits.shape
    widths = [longest] * rows if lengths is None else lengths
    _read_tensors(document, widths, settings)
    request = seeded(read_request(model, _with_arrays(document), widths=widths))
    check_output(answer_numbers(request, rows, longest), settings)
    return Job(logits, request, lengths, settings.max_output_elements)


def seeded(request: Request) -> Request:
    """The request, with a seed of the server's own where it draws and came without one."""
    if isinstance(request, SampleRequest) and request.seed is None:
        # 53 bits, which every client's JSON can hold.
        return request.model_copy(update={"seed": secrets.randbits(53)})
    return request


def answer_numbers(request: Request, rows: int, classes: int) -> int:
    """How many numbers the dense outputs of an answer hold, as far as the request tells."""
    wanted, jacobian = request.wanted(), request.derivatives()
    wide = {"probabilities", "log_probabilities", "gradient"} & wanted
    per_row = classes * len(wide)
    if "parameter_gradients" in wanted:
        per_row += 2 * classes
    if "jacobian" in wanted:
        per_row += classes * (classes if jacobian.form == "dense" else 1)
    draws = request.draws()
    if draws is not None:
        per_row += 2 * draws.samples
    return rows * per_row


def _read_tensors(document: dict[str, Any], widths: Sequence[int], settings: Settings) -> None:
    """Turns the number arrays beside the logits into tensors, in place."""
    targets, asked = document.get("targets"), document.get("jacobian")
    if targets is not None:
        document["targets"] = _targets(targets, widths, settings)
    if isinstance(asked, dict) and asked.get("vector") is not None:
        name = "jacobian.vector"
        vector = _per_class(numbers(asked["vector"], name, settings), name, widths)
        document["jacobian"] = {**asked, "vector": vector}


def _targets(value: object, widths: Sequence[int], settings: Settings) -> Tensor:
    """Class ids (rows,), or distributions (rows, classes)."""
    array = numbers([value] if type(value) is int else value, "targets", settings)
    if array.lengths is not None:
        return _per_class(array, "targets", widths)
    one_row = len(widths) == 1 and len(array.values) == widths[0] > 1
    if one_row or (len(array.values) and array.values.dtype.kind == "f"):
        return _per_class(array, "targets", widths)
    return torch.from_numpy(array.values.astype(np.int64))


def _per_class(array: Numbers, name: str, widths: Sequence[int]) -> Tensor:
    """Numbers given for every class of every row, (rows, longest); 0 where a row has none."""
    given = [len(array.values)] if array.lengths is None else array.lengths.tolist()
    if given != list(widths):
        row = next((i for i, (a, b) in enumerate(zip(given, widths, strict=False)) if a != b), None)
        message = f"{name} has {len(given)} rows for {len(widths)} rows of logits"
        if row is not None:
            message = f"{name}[{row}] has {given[row]} numbers for {widths[row]} classes"
        raise InvalidRequest.at(tuple(name.split(".")), message)
    values = array.padded(0.0).astype(np.float64, copy=False).reshape(len(widths), -1)
    if not np.isfinite(values).all():
        raise InvalidRequest.at(tuple(name.split(".")), f"{name} has a null; give numbers")
    return torch.from_numpy(values)


def check_output(elements: int, settings: Settings) -> None:
    """Raises TooLarge for an answer of more numbers than the limit."""
    limit = settings.max_output_elements
    if elements > limit:
        raise TooLarge.over(
            f'the answer would hold {elements:,} numbers; ask for "support" with a support_limit,'
            " for fewer outputs or for fewer rows",
            "max_output_elements",
            limit,
        )


def answer_bytes(evaluation: Evaluation) -> int:
    """About how long an answer's JSON will be (bytes)."""
    values = [getattr(evaluation, name) for name in OUTPUTS]
    dense = sum(value.numel() for value in values if isinstance(value, Tensor))
    listed = sum(value.indices.numel() for value in values if isinstance(value, Support))
    slopes = sum(value.numel() for value in (evaluation.parameter_gradients or {}).values())
    if evaluation.jacobian is not None:
        slopes += evaluation.jacobian.numbers
    return 20 * (dense + slopes) + 50 * listed


def encode(job: Job, evaluation: Evaluation, settings: Settings) -> list[bytes]:
    """The JSON answer to a job, in parts.

    Raises:
        TooLarge: the answer holds more numbers than the limit.
    """
    support = evaluation.support
    if support is not None:
        check_output(3 * support.indices.numel(), settings)
    request = job.request
    blank = frozenset(row for row, text in enumerate(evaluation.status) if text != VALID)
    text = JsonText()
    text.raw(b'{"mapping":')
    mapping = request.mapping
    text.value(mapping.model_dump(exclude=set(mapping.per_class_fields())))
    text.raw(b',"rows":%d' % job.rows)
    if request.invalid_rows == "report":
        text.raw(b',"status":')
        text.value(evaluation.status)
    if isinstance(request, SampleRequest):
        text.raw(b',"seed":')
        text.value(request.seed)
    for name in OUTPUTS:
        value = getattr(evaluation, name)
        if value is None:
            continue
        text.raw(b',"%b":' % name.encode())
        if isinstance(value, Support):
            _write_support(text, value, blank)
        elif isinstance(value, JacobianAnswer):
            write_jacobian(text, value, job.lengths, blank)
        elif isinstance(value, dict):
            write_gradients(text, value, job.lengths, blank)
        elif value.ndim == 2:
            drawn = name in ("tokens", "token_log_probabilities")
            text.rows(value.numpy(), None if drawn else job.lengths, blank)
        elif value.is_floating_point():
            text.numbers(value.numpy())
        else:
            counts = enumerate(value.tolist())
            text.value([None if row in blank else count for row, count in counts])
    text.raw(b"}")
    return text.finished()


def _logits(array: Numbers, settings: Settings) -> tuple[Tensor, list[int] | None]:
    """The logits (rows, longest) in float64, and each row's length where they differ."""
    if array.lengths is None:
        # An empty array is a batch of no rows; a row without a class would be [[]].
        rows = 1 if len(array.values) else 0
        array = Numbers(array.values, np.full(rows, len(array.values)))
    lengths = array.lengths
    assert lengths is not None
    longest = int(lengths.max(initial=0))
    if longest > settings.max_classes:
        message = f"logits has a row of {longest:,} classes"
        raise TooLarge.over(message, "max_classes", settings.max_classes)
    if len(lengths) and not lengths.all():
        row = int(lengths.argmin())
        message = f"logits[{row}] has no class; give at least 1 logit a row"
        raise InvalidRequest.at(("logits", row), message)
    values = array.padded(-math.inf).astype(np.float64, copy=False)
    ragged = bool((lengths != longest).any())
    logits = torch.from_numpy(values.reshape(len(lengths), max(1, longest)))
    return logits, lengths.tolist() if ragged else None


def _with_arrays(value: Any, depth: int = 0) -> Any:
    """A request in which long arrays are numpy's: one, or where they have rows, a list of them."""
    if depth > MAX_DEPTH:
        return value
    if isinstance(value, Numbers):
        return value.values if value.lengths is None else value.rows()
    if isinstance(value, dict):
        return {name: _with_arrays(entry, depth + 1) for name, entry in value.items()}
    if isinstance(value, list) and any(isinstance(entry, dict) for entry in value):
        return [_with_arrays(entry, depth + 1) for entry in value]
    return value


def _write_support(text: JsonText, support: Support, blank: frozenset[int]) -> None:
    offsets = support.offsets.tolist()
    truncated = support.truncated.tolist()
    masses = support.mass.tolist()
    arrays = {
        "indices": support.indices.numpy(),
        "probabilities": support.probabilities.numpy(),
        "log_probabilities": support.log_probabilities.numpy(),
    }
    text.raw(b"[")
    for row, (start, stop) in enumerate(pairwise(offsets)):
        if row:
            text.raw(b",")
        cut = {"truncated": True, "mass": masses[row]} if truncated[row] else {}
        if row in blank:
            text.raw(b"null")
        elif stop - start <= SLICE_NUMBERS:
            text.value({name: array[start:stop] for name, array in arrays.items()} | cut)
        else:
            for place, (name, array) in enumerate(arrays.items()):
                text.raw(b'%b"%b":' % (b"," if place else b"{", name.encode()))
                text.numbers(array[start:stop])
            text.raw(b',"truncated":true,"mass":%b}' % repr(masses[row]).encode() if cut else b"}")
    text.raw(b"]")
