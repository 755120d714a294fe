"""The Open Inference Protocol's way in: bodies to jobs."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from mappings.base import Mapping
from mappings.errors import InvalidParameter, Problem
from schemas.errors import InvalidRequest, Loc, path, unknown_fields
from schemas.parameters import ALIASES
from schemas.read import read_request
from schemas.request import MapRequest, Request, SampleRequest
from service.engine.job import Job
from service.errors import MalformedBody
from service.settings import Settings
from service.wire.exchange import Body
from service.wire.json_decode import seeded
from service.wire.limits import check_logits, check_numbers
from service.wire.number_arrays import parse
from service.wire.oip_datatypes import DATATYPES, FLOATING
from service.wire.oip_fields import refuse
from service.wire.oip_header import HEADER
from service.wire.oip_message import InputTensor, Message, message_of
from service.wire.oip_outputs import DRAWN, chosen, counted_numbers, evaluated
from service.wire.oip_tensors import Tensors
from service.wire.shared_memory import Regions

LOGITS = "logits"

CHAIN = {
    "temperature": ("temperature", "value"),
    "top_k": ("top_k", "k"),
    "top_p": ("top_p", "p"),
    "min_p": ("min_p", "ratio"),
}
"""Parameters that are steps before the mapping, in this order: a processor and its field. Alone,
the temperature is the mapping's own, which divides the same logits by the same number."""

REQUEST_FIELDS = ("seed", "samples", "replacement", "support_limit", "invalid_rows")
"""Parameters that are the request's, not the mapping's."""

DRAWING = ("seed", "samples", "replacement")
"""Those that only a request for tokens has, and that ask for them."""


def decode(
    body: Body,
    json_bytes: int | None,
    mapping: type[Mapping],
    settings: Settings,
    regions: Regions,
) -> tuple[Job, Message]:
    """The job that a body asks for, and what else it says, with the outputs to answer.

    Args:
        body: the whole of it; the job's logits are a view of it where they can be.
        json_bytes: how long its JSON is: 0 where the body is one row of FP32 and nothing else,
            None where the header did not say.
        mapping: the model that is asked.
        settings: the limits.
        regions: of shared memory.

    Raises:
        ProbmapError: the body is malformed, over a limit, or asks for what cannot be.
    """
    if json_bytes == 0:
        message = _raw(body)
    else:
        text = body if json_bytes is None else body[:json_bytes]
        document = text if isinstance(text, bytearray) else bytearray(text)
        message = message_of(parse(document, settings))
    tensors = Tensors(body, json_bytes, message.inputs, settings, regions)
    rows, classes = _checked_shape(message, settings)
    given = _given(message, tensors, mapping, rows)
    own = {*mapping.model_fields, *ALIASES} - {"name"}
    is_drawn = any(name in given and name not in own for name in DRAWING)
    message = replace(message, outputs=chosen(message, is_drawn=is_drawn))
    request = _request(given, message, mapping, own, [classes] * rows, is_drawn=is_drawn)
    numbers = counted_numbers(message.outputs, request, rows, classes)
    check_numbers(numbers, request, settings)
    job = Job(tensors[LOGITS], request, None, settings.max_output_elements)
    for output in message.outputs.values():
        if output.shared is not None:
            region = regions.region(output.shared.region)
            region.check(output.shared.offset, output.shared.size)
    return job, message


def _raw(body: Body) -> Message:
    """What a body without JSON says: it is one row of FP32."""
    count, rest = divmod(len(body), DATATYPES["FP32"].bytes_of(1))
    if rest or not count:
        raise MalformedBody(
            f"with {HEADER} 0 the body should be one row of FP32, 4 bytes a class, but it has "
            f"{len(body):,} bytes"
        )
    shape = (1, count)
    row = InputTensor(("body",), LOGITS, DATATYPES["FP32"], shape, len(body), None, None)
    return Message(None, {LOGITS: row}, {}, {}, True, None)


def _checked_shape(message: Message, settings: Settings) -> tuple[int, int]:
    """The rows and classes of the logits, within the limits."""
    logits = message.inputs.get(LOGITS)
    if logits is None:
        refuse(("inputs",), f"should have one named {LOGITS}")
    if not logits.datatype.is_float:
        refuse((*logits.loc, "datatype"), f"of {LOGITS} should be one of {', '.join(FLOATING)}")
    if len(logits.shape) != 2:
        refuse((*logits.loc, "shape"), f"of {LOGITS} should be [rows, classes]")
    rows, classes = logits.shape
    if not classes:
        refuse((*logits.loc, "shape"), f"of {LOGITS} should have at least 1 class")
    check_logits(rows, classes, settings)
    return rows, classes


def _given(message: Message, tensors: Tensors, mapping: type[Mapping], rows: int) -> dict[str, Any]:
    """The values of everything but the logits, by name: parameters and inputs."""
    values = dict(message.parameters)
    by_row = {*mapping.per_row_fields(), "seed", *CHAIN}
    by_class = mapping.per_class_fields()
    names = (LOGITS, *by_class, *mapping.per_row_fields(), *CHAIN, "seed")
    for name, sent in message.inputs.items():
        if name == LOGITS:
            continue
        if name not in by_row and name not in by_class:
            raise unknown_fields([name], tuple(dict.fromkeys(names)), ("inputs",), "the model")
        if name in values:
            refuse(sent.loc, f"is {name}, which is also among the parameters; give it once")
        if name in by_row and sent.shape not in ((rows,), (rows, 1)):
            refuse((*sent.loc, "shape"), f"of {name} should be [{rows}] or [{rows}, 1]")
        tensor = tensors[name]
        values[name] = _listed(tensor) if name in by_row else tensor
    return values


def _listed(tensor: Tensor) -> list[Any]:
    """One number a row."""
    wide = tensor.double() if tensor.dtype == torch.bfloat16 else tensor
    values: list[Any] = wide.flatten().tolist()
    return values


def _request(
    values: dict[str, Any],
    message: Message,
    mapping: type[Mapping],
    own: set[str],
    widths: list[int],
    *,
    is_drawn: bool,
) -> Request:
    """The request that parameters, inputs and outputs make."""
    unknown = [name for name in message.parameters if name not in {*own, *CHAIN, *REQUEST_FIELDS}]
    about = str(mapping.model_fields["name"].default)
    if unknown:
        fields = [name for name in mapping.model_fields if name != "name"]
        choices = tuple(dict.fromkeys((*fields, *CHAIN, *REQUEST_FIELDS)))
        raise unknown_fields(unknown, choices, ("parameters",), about)
    is_chain = any(name in values for name in CHAIN if name not in own)
    steps = [name for name in CHAIN if is_chain and name in values]
    fields_of = {name: value for name, value in values.items() if name in own and name not in steps}
    is_sample = is_drawn or not message.outputs.keys().isdisjoint(DRAWN)
    model: type[Request] = SampleRequest if is_sample else MapRequest
    document: dict[str, Any] = {
        "mapping": {**fields_of, "name": about},
        "processors": [{"name": CHAIN[name][0], CHAIN[name][1]: values[name]} for name in steps],
        "outputs": list(evaluated(message.outputs)),
    }
    for name in REQUEST_FIELDS:
        if name in values and name in model.model_fields:
            document[name] = values[name]
    try:
        return seeded(read_request(model, document, widths=widths))
    except (InvalidRequest, InvalidParameter) as error:
        raise _as_sent(error, steps) from None


def _as_sent(error: InvalidRequest | InvalidParameter, steps: list[str]) -> Exception:
    """The same error, told of the names that the client gave."""
    names: dict[Loc, str] = {("processors", place): name for place, name in enumerate(steps)}
    problems, detail = [], error.detail
    for problem in error.problems:
        loc, message = problem.loc, problem.message
        if loc[:2] in names and len(loc) > 2:
            name = names[loc[:2]]
            old, loc = path(loc[:3]), (name, *loc[3:])
            message, detail = message.replace(old, name), detail.replace(old, name)
        elif loc[:1] == ("mapping",):
            loc = loc[1:]
            message, detail = message.replace("mapping.", ""), detail.replace("mapping.", "")
        problems.append(Problem(loc, message))
    return type(error)(detail, tuple(problems))
