"""What a model's metadata and configuration say of a mapping, all of it read from its class."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import orjson

from mappings.base import Mapping
from mappings.registry import PROCESSORS
from schemas.description import ParameterDescription, parameters
from service.wire.oip_decode import CHAIN, LOGITS
from service.wire.oip_encode import VERSION
from service.wire.oip_outputs import OUTPUT_KINDS

PLATFORM = "probmap"

PARAMETER_DATATYPES = {"integer": "INT64", "number": "FP64", "boolean": "BOOL", "string": "BYTES"}
"""The datatype in which a parameter of each type is best sent."""

SEED = "UINT64"
"""That of a seed, which may use all its bits."""


@dataclass(frozen=True, slots=True)
class ModelInput:
    """A tensor that a model takes.

    Attributes:
        shape: −1 where it depends on the request.
        is_optional: whether a request can leave it out.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    is_optional: bool


def model_inputs(mapping: type[Mapping]) -> Iterator[ModelInput]:
    """The logits, and one input for every field that can differ from row to row."""
    yield ModelInput(LOGITS, "FP32", (-1, -1), is_optional=False)
    own = [one for one in parameters(mapping) if one.kind != "static"]
    for one in own:
        # A class's parameters cannot be parameters of the protocol, which are single values.
        is_needed = one.required and one.kind == "per_class"
        shape = (-1, -1) if one.kind == "per_class" else (-1, 1)
        yield ModelInput(one.name, _datatype(one), shape, is_optional=not is_needed)
    names = {one.name for one in own}
    for name, (processor, field) in CHAIN.items():
        if name not in names:
            described = {one.name: one for one in parameters(PROCESSORS[processor])}
            yield ModelInput(name, _datatype(described[field]), (-1, 1), is_optional=True)
    if "seed" not in names:
        yield ModelInput("seed", SEED, (-1, 1), is_optional=True)


def _datatype(parameter: ParameterDescription) -> str:
    return SEED if parameter.name == "seed" else PARAMETER_DATATYPES[parameter.type]


@cache
def metadata(mapping: type[Mapping]) -> dict[str, object]:
    """A model's metadata."""
    return {
        "name": name_of(mapping),
        "versions": [VERSION],
        "platform": PLATFORM,
        "inputs": [
            {"name": one.name, "datatype": one.datatype, "shape": list(one.shape)}
            for one in model_inputs(mapping)
        ],
        "outputs": [
            {"name": name, "datatype": kind.datatype, "shape": list(kind.shape)}
            for name, kind in OUTPUT_KINDS.items()
        ],
    }


@cache
def configuration(mapping: type[Mapping]) -> dict[str, object]:
    """A model's configuration, as Triton's ModelConfig has it.

    Rows are a dimension like any other (`max_batch_size` 0), since not every output has them.
    """
    return {
        "name": name_of(mapping),
        "platform": PLATFORM,
        "backend": PLATFORM,
        "version_policy": {"specific": {"versions": [int(VERSION)]}},
        "max_batch_size": 0,
        "input": [
            {
                "name": one.name,
                "data_type": f"TYPE_{one.datatype}",
                "dims": list(one.shape),
                "optional": one.is_optional,
            }
            for one in model_inputs(mapping)
        ],
        "output": [
            {"name": name, "data_type": _config_type(kind.datatype), "dims": list(kind.shape)}
            for name, kind in OUTPUT_KINDS.items()
        ],
        "parameters": {
            one.name: {"string_value": orjson.dumps(one.model_dump()).decode()}
            for one in parameters(mapping)
        },
        "dynamic_batching": {},
    }


def _config_type(datatype: str) -> str:
    """The configuration's name of a datatype."""
    return "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"


def name_of(mapping: type[Mapping]) -> str:
    """A mapping's registered name."""
    return str(mapping.model_fields["name"].default)
