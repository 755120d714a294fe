"""The safetensors wire's way in: bodies to jobs."""

from torch import Tensor

from schemas.errors import InvalidRequest
from schemas.request import Request
from service.engine.job import Job
from service.errors import MalformedBody
from service.settings import Settings
from service.wire.exchange import Body
from service.wire.field_places import Fields
from service.wire.json_decode import job_with
from service.wire.limits import check_logits
from service.wire.number_arrays import parse
from service.wire.safetensors_fields import add_tensors
from service.wire.safetensors_header import contents

MEDIA_TYPE = "application/vnd.safetensors"

REQUEST = "request"
"""The metadata entry that holds the request's fields, as JSON."""


def decode(body: Body, model: type[Request], settings: Settings) -> Job:
    """The job that a safetensors body asks for; its logits are a view of the body.

    Raises:
        ProbmapError: the body is not safetensors, over a limit, or asks for what cannot be.
    """
    found = contents(body)
    fields = _fields(found.metadata.get(REQUEST), settings)
    if "logits" not in found.tensors:
        raise InvalidRequest.at(("logits",), "the tensor logits is missing")
    logits = _logits(found.tensors.pop("logits"), settings)
    rows, classes = logits.shape
    add_tensors(fields, found.tensors, model, [classes] * rows)
    return job_with(logits, None, fields, model, settings)


def _fields(text: str | None, settings: Settings) -> Fields:
    if text is None:
        message = f'the metadata entry "{REQUEST}" is missing; it holds the request as JSON'
        raise InvalidRequest.at((REQUEST,), message)
    fields = parse(bytearray(text.encode()), settings)
    if not isinstance(fields, dict):
        message = f'the metadata entry "{REQUEST}" should be an object: {{"mapping": …}}'
        raise InvalidRequest.at((REQUEST,), message)
    if "logits" in fields:
        message = f'logits is a tensor; leave it out of the metadata entry "{REQUEST}"'
        raise InvalidRequest.at(("logits",), message)
    return fields


def _logits(logits: Tensor, settings: Settings) -> Tensor:
    """The logits as (rows, classes), within the limits."""
    if not logits.is_floating_point():
        raise MalformedBody("the tensor logits should be F16, BF16, F32 or F64")
    if logits.ndim not in (1, 2):
        message = f"logits has {logits.ndim} dimensions; give rows × classes, or one row"
        raise InvalidRequest.at(("logits",), message)
    rows, classes = logits.shape if logits.ndim == 2 else (min(1, len(logits)), len(logits))
    check_logits(rows, classes, settings)
    if rows == 0:
        return logits.reshape(0, max(1, classes))
    if classes == 0:
        raise InvalidRequest.at(("logits", 0), "logits[0] has no class; give at least 1 a row")
    return logits.reshape(rows, classes)
