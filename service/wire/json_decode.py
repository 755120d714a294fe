"""The JSON wire's way in: bodies to jobs."""

import secrets
from typing import Any

from torch import Tensor

from schemas.errors import InvalidRequest
from schemas.read import read_request
from schemas.request import Request, SampleRequest
from service.engine.job import Job
from service.settings import Settings
from service.wire.json_arrays import read_logits, read_targets, read_vector
from service.wire.number_arrays import parse
from service.wire.numbers import Numbers

MAX_DEPTH = 4
"""How deep in a request arrays can be of use (a count): in a processor, that is in a list."""


def decode(body: bytearray, model: type[Request], settings: Settings) -> Job:
    """The job that a JSON body asks for.

    Raises:
        ProbmapError: the body is not JSON, over a limit, or asks for what cannot be.
    """
    return job_of(parse(body, settings), model, settings)


def job_of(document: object, model: type[Request], settings: Settings) -> Job:
    """The job that a parsed JSON document asks for.

    Raises:
        ProbmapError: the document is over a limit, or asks for what cannot be.
    """
    if not isinstance(document, dict):
        raise InvalidRequest.at((), 'the body should be an object: {"logits": …, "mapping": …}')
    if "logits" not in document:
        raise InvalidRequest.at(("logits",), "logits is missing; give one row, or rows of numbers")
    logits, lengths = read_logits(document.pop("logits"), settings)
    return job_with(logits, lengths, document, model, settings)


def job_with(
    logits: Tensor,
    lengths: list[int] | None,
    document: dict[str, Any],
    model: type[Request],
    settings: Settings,
) -> Job:
    """The job that a request's fields ask for of logits that are read already.

    Args:
        logits: (rows, longest) within the limits.
        lengths: the classes of each row; None: all the same.
        document: the fields as JSON has them; of arrays, some may be numpy's, and targets and a
            Jacobian's vector tensors that are checked already.
        model: the kind of request.
        settings: the limits.

    Raises:
        InvalidRequest: the fields are none of a request, or do not fit the logits.
        InvalidParameter: a parameter is out of its bounds, or does not fit the logits.
        TooLarge: an array is over a limit.
    """
    rows, longest = logits.shape
    widths = [longest] * rows if lengths is None else lengths
    targets, asked = document.get("targets"), document.get("jacobian")
    given = "targets" in document and "targets" in model.model_fields
    if given and not isinstance(targets, Tensor):
        document["targets"] = read_targets(targets, widths, settings)
    if isinstance(asked, dict) and not isinstance(asked.get("vector"), Tensor | None):
        document["jacobian"] = {**asked, "vector": read_vector(asked["vector"], widths, settings)}
    request = seeded(read_request(model, _with_arrays(document), widths=widths))
    return Job(logits, request, lengths, settings.max_output_elements)


def seeded(request: Request) -> Request:
    """The request, with a seed of the server's own where it draws and came without one."""
    if isinstance(request, SampleRequest) and request.seed is None:
        # 53 bits, which every client's JSON can hold.
        return request.model_copy(update={"seed": secrets.randbits(53)})
    return request


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
