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
from schemas.errors import InvalidRequest, Loc, path
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
    logits, lengths = _logits(numbers(document.pop("logits"), ("logits",), settings), settings)
    rows, longest = logits.shape
    widths = [longest] * rows if lengths is None else lengths
    if "targets" in document and "targets" in model.model_fields:
        document["targets"] = _targets(document["targets"], widths, settings)
    asked = document.get("jacobian")
    if isinstance(asked, dict) and asked.get("vector") is not None:
        document["jacobian"] = {**asked, "vector": _vector(asked["vector"], widths, settings)}
    request = seeded(read_request(model, _with_arrays(document), widths=widths))
    check_output(answer_numbers(request, rows, longest), settings, _smaller(request))
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


def _smaller(request: Request) -> str:
    """What to ask for when the answer to a request is too large."""
    if "jacobian" in request.wanted() and request.derivatives().form == "dense":
        return 'ask for the Jacobian as "factors", or for products with it ("jvp", "vjp")'
    if request.draws() is not None:
        return "ask for fewer samples, fewer outputs or fewer rows"
    return 'ask for "support" with a support_limit, for fewer outputs or for fewer rows'


def _vector(value: object, widths: Sequence[int], settings: Settings) -> Tensor:
    """What a Jacobian is multiplied with, (rows, longest)."""
    loc = ("jacobian", "vector")
    return _per_class(numbers(value, loc, settings), loc, widths)


def _targets(value: object, widths: Sequence[int], settings: Settings) -> Tensor:
    """Class ids (rows,), or distributions (rows, longest)."""
    loc = ("targets",)
    array = numbers([value] if type(value) is int else value, loc, settings)
    values, whole = array.values, array.values.dtype.kind != "f"
    # One number for one class is the distribution 1.0, or the class id 0.
    one_row = len(widths) == 1 and len(values) == widths[0] and not (whole and widths[0] == 1)
    if array.lengths is not None or one_row:
        return _per_class(array, loc, widths)
    _refuse_null(array, loc)
    if len(values) and not whole:
        message = "targets should be class ids, which are integers, or one distribution a row"
        raise InvalidRequest.at(loc, message)
    return torch.from_numpy(np.minimum(values, np.iinfo(np.int64).max).astype(np.int64))


def _per_class(array: Numbers, loc: Loc, widths: Sequence[int]) -> Tensor:
    """Numbers given for every class of every row, (rows, longest); 0 where a row has none."""
    _refuse_null(array, loc)
    flat = [len(array.values)] if len(array.values) else []
    given = flat if array.lengths is None else array.lengths.tolist()
    if len(given) != len(widths):
        message = f"{path(loc)} has {len(given)} rows for {len(widths)} rows of logits"
        raise InvalidRequest.at(loc, message)
    for row, (count, classes) in enumerate(zip(given, widths, strict=True)):
        if count != classes:
            where = (*loc, row)
            message = f"{path(where)} has {count} numbers for {classes} classes"
            raise InvalidRequest.at(where, message)
    values = array.padded(0.0).astype(np.float64, copy=False)
    return torch.from_numpy(values.reshape(len(widths), max(1, max(widths, default=0))))


def _refuse_null(array: Numbers, loc: Loc) -> None:
    """Raises the error of an array of which a number is missing."""
    missing = np.flatnonzero(np.isinf(array.values))
    if len(missing):
        place = int(missing[0])
        where: Loc = (*loc, place)
        if array.lengths is not None:
            starts = array.lengths.cumsum()
            row = int(starts.searchsorted(place, side="right"))
            where = (*loc, row, place - int(starts[row] - array.lengths[row]))
        raise InvalidRequest.at(where, f"{path(where)} is null; it should be a number")


def check_output(elements: int, settings: Settings, cure: str) -> None:
    """Raises TooLarge, which says what to ask for instead, for more numbers than the limit."""
    limit = settings.max_output_elements
    if elements > limit:
        raise TooLarge.over(
            f"the answer would hold {elements:,} numbers; {cure}", "max_output_elements", limit
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
    request, support = job.request, evaluation.support
    if support is not None:
        check_output(3 * support.indices.numel(), settings, _smaller(request))
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
