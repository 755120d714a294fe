"""The JSON wire's way out: evaluations to answers."""

from itertools import pairwise

from torch import Tensor

from mappings.evaluation import OUTPUTS, VALID, Evaluation, JacobianAnswer
from mappings.support import Support
from schemas.request import SampleRequest
from service.engine.job import Job
from service.settings import Settings
from service.wire.json_derivatives import write_gradients, write_jacobian
from service.wire.json_text import SLICE_NUMBERS, JsonText
from service.wire.limits import check_numbers


def written_bytes(evaluation: Evaluation) -> int:
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
        check_numbers(3 * support.indices.numel(), request, settings)
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
