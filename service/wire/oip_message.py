"""A request of the Open Inference Protocol as it was sent: tensors, outputs and parameters."""

from dataclasses import dataclass
from typing import Any

from schemas.errors import Loc, shortened
from service.wire.exchange import MAX_TIMEOUT_SECONDS
from service.wire.oip_datatypes import DATATYPES, Datatype
from service.wire.oip_fields import (
    count_at,
    flag_at,
    list_at,
    object_at,
    only,
    refuse,
    shape_at,
    text_at,
)

RESERVED = ("sequence_id", "sequence_start", "sequence_end", "priority", "headers")
"""Parameters that have a meaning in the protocol, but none for a server without state."""

TRITON = "triton_"
"""How other reserved parameters begin."""

MICROSECONDS = 1_000_000
"""How many of a timeout are a second."""


@dataclass(frozen=True, slots=True)
class SharedRange:
    """A place in a shared memory region.

    Attributes:
        region: the name it is registered under.
        offset: from the region's start (bytes).
        size: bytes.
    """

    region: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class InputTensor:
    """A tensor that was sent; exactly one of its last three fields says where its items are.

    Attributes:
        loc: where in the request it stands.
        name: what it stands for: the logits, or a field of one value a row or a class.
        datatype: of its items.
        shape: its dimensions (a count each), one or two of them.
        binary_bytes: its items are this many bytes of the body behind the JSON.
        shared: they are in a shared memory region.
        data: they are JSON.
    """

    loc: Loc
    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    binary_bytes: int | None
    shared: SharedRange | None
    data: Any


@dataclass(frozen=True, slots=True)
class RequestedOutput:
    """An output that was asked for.

    Attributes:
        loc: where in the request it stands; empty: it was not asked for, but is a default.
        name: of one of the model's outputs.
        is_binary: whether it is answered behind the JSON, or in it.
        classes: how many of the largest to answer as texts; None: the tensor itself.
        shared: where to write it instead.
    """

    loc: Loc
    name: str
    is_binary: bool
    classes: int | None = None
    shared: SharedRange | None = None

    @property
    def is_text(self) -> bool:
        """Whether its items are written in the JSON."""
        return not self.is_binary and self.shared is None


@dataclass(frozen=True, slots=True)
class Message:
    """A request.

    Attributes:
        id: what the client calls it; echoed.
        inputs: by name.
        outputs: by name, in order; empty: none was asked for.
        parameters: those that concern the mapping.
        is_binary: how outputs are answered that do not say.
        timeout_seconds: the time given for the answer; None: any.
    """

    id: str | None
    inputs: dict[str, InputTensor]
    outputs: dict[str, RequestedOutput]
    parameters: dict[str, Any]
    is_binary: bool
    timeout_seconds: float | None


def message_of(document: object) -> Message:
    """A parsed request.

    Raises:
        MalformedBody: it breaks a rule of the protocol.
    """
    if not isinstance(document, dict):
        refuse((), 'the body should be an object: {"inputs": [{"name": "logits", …}]}')
    only(document, ("inputs", "outputs", "parameters", "id", "model_name", "model_version"), ())
    parameters = object_at(document.get("parameters"), ("parameters",))
    loc = ("parameters", "binary_data_output")
    is_binary = flag_at(parameters.pop("binary_data_output", False), loc)
    timeout = count_at(parameters.pop("timeout", 0), ("parameters", "timeout"))
    if timeout > MICROSECONDS * MAX_TIMEOUT_SECONDS:
        most = f"{MICROSECONDS * MAX_TIMEOUT_SECONDS:,}"
        refuse(("parameters", "timeout"), f"should be at most {most} microseconds, a day")
    for name in [*parameters]:
        if name in RESERVED or name.startswith(TRITON):
            del parameters[name]
        elif not isinstance(parameters[name], bool | int | float | str):
            refuse(("parameters", name[:64]), "should be a number, a string, true or false")
    given = document.get("id")
    return Message(
        None if given is None else text_at(given, ("id",)),
        _inputs(document),
        _outputs(document, is_binary),
        parameters,
        is_binary,
        timeout / MICROSECONDS if timeout else None,
    )


def _inputs(document: dict[str, Any]) -> dict[str, InputTensor]:
    found: dict[str, InputTensor] = {}
    for place, entry in enumerate(list_at(document.get("inputs"), ("inputs",))):
        loc: Loc = ("inputs", place)
        fields = object_at(entry, loc)
        only(fields, ("name", "datatype", "shape", "data", "parameters"), loc)
        name = text_at(fields.get("name"), (*loc, "name"))
        if name in found:
            refuse((*loc, "name"), f"is {shortened(name)}, as an input before; give it once")
        datatype = text_at(fields.get("datatype"), (*loc, "datatype"))
        if datatype not in DATATYPES:
            refuse((*loc, "datatype"), f"should be one of {', '.join(DATATYPES)}")
        parameters = object_at(fields.get("parameters"), (*loc, "parameters"))
        size = parameters.get("binary_data_size")
        if size is not None:
            size = count_at(size, (*loc, "parameters", "binary_data_size"))
        shared = _shared(parameters, (*loc, "parameters"))
        data = fields.get("data")
        ways = (size, shared, data)
        if sum(way is not None for way in ways) != 1:
            refuse(
                loc,
                "should have its items in one place: in data, in the body (binary_data_size), or "
                "in shared memory (shared_memory_region)",
            )
        shape = shape_at(fields.get("shape"), (*loc, "shape"))
        found[name] = InputTensor(loc, name, DATATYPES[datatype], shape, size, shared, data)
    return found


def _outputs(document: dict[str, Any], is_binary: bool) -> dict[str, RequestedOutput]:
    found: dict[str, RequestedOutput] = {}
    for place, entry in enumerate(list_at(document.get("outputs"), ("outputs",))):
        loc: Loc = ("outputs", place)
        fields = object_at(entry, loc)
        only(fields, ("name", "parameters"), loc)
        name = text_at(fields.get("name"), (*loc, "name"))
        if name in found:
            refuse((*loc, "name"), f"is {shortened(name)}, as an output before; ask for it once")
        where = (*loc, "parameters")
        parameters = object_at(fields.get("parameters"), where)
        classes = parameters.get("classification")
        if classes is not None:
            classes = count_at(classes, (*where, "classification"), least=1)
        shared = _shared(parameters, where)
        binary = flag_at(parameters.get("binary_data", is_binary), (*where, "binary_data"))
        if shared is not None and classes is not None:
            refuse(where, "should not have both classification and a shared_memory_region")
        found[name] = RequestedOutput(loc, name, binary and shared is None, classes, shared)
    return found


def _shared(parameters: dict[str, Any], loc: Loc) -> SharedRange | None:
    """The place in shared memory that an input's or an output's parameters name."""
    region = parameters.get("shared_memory_region")
    size = parameters.get("shared_memory_byte_size")
    offset = parameters.get("shared_memory_offset")
    if region is None and size is None and offset is None:
        return None
    return SharedRange(
        text_at(region, (*loc, "shared_memory_region")),
        count_at(0 if offset is None else offset, (*loc, "shared_memory_offset")),
        count_at(size, (*loc, "shared_memory_byte_size")),
    )
