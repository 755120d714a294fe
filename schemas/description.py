"""What a client can learn about a mapping, all of it read from the mapping's class."""

import inspect
from collections.abc import Iterator
from functools import cache
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo

from mappings.base import Mapping
from mappings.parameters import Parameters
from mappings.processor import Processor
from mappings.registry import MAPPINGS, PROCESSORS

_BOUNDS = {
    "minimum": "minimum",
    "maximum": "maximum",
    "exclusiveMinimum": "exclusive_minimum",
    "exclusiveMaximum": "exclusive_maximum",
    "multipleOf": "multiple_of",
    "enum": "choices",
}


class ParameterDescription(BaseModel):
    """One parameter: its type, bounds and meaning."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    name: str
    """As a request gives it."""
    type: str
    """number, integer, string or boolean: of one value."""
    kind: Literal["per_row", "per_class", "per_row_list", "static"]
    """per_row: one value or a list of one a row; per_class: one value a class; per_row_list: one
    list or a list of one a row; static: one."""
    required: bool
    """Whether a request must give it."""
    default: Any = None
    """What holds when it is not given; null: off."""
    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: float | None = None
    exclusive_maximum: float | None = None
    multiple_of: float | None = None
    choices: list[Any] | None = None
    """The values there are, when there are only some."""
    description: str
    """What it does, and its unit."""


class MappingDescription(BaseModel):
    """One mapping: what it is, what it promises, what it takes."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    name: str
    """As a request gives it."""
    summary: str
    """What it is, in a sentence."""
    description: str
    """Formula, ties, limits, cost and reference."""
    shift_invariant: bool
    """Whether adding a constant to a row's logits changes nothing."""
    monotone: bool
    """Whether a larger logit never has a smaller probability in its row."""
    sparse: bool
    """Whether unmasked classes can get exactly 0."""
    parameters: list[ParameterDescription]
    """What it takes."""


class ProcessorDescription(BaseModel):
    """One logits processor: what it keeps, what it takes."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    name: str
    """As a request gives it."""
    summary: str
    """What it is, in a sentence."""
    description: str
    """Rule, ties, limits, cost and reference."""
    parameters: list[ParameterDescription]
    """What it takes."""


class MappingList(BaseModel):
    """The registered mappings."""

    mappings: list[MappingDescription]


class ProcessorList(BaseModel):
    """The registered logits processors."""

    processors: list[ProcessorDescription]


@cache
def describe_all() -> MappingList:
    """Every registered mapping."""
    return MappingList(mappings=[describe(mapping) for mapping in MAPPINGS.values()])


@cache
def describe_all_processors() -> ProcessorList:
    """Every registered logits processor."""
    return ProcessorList(processors=[describe_processor(one) for one in PROCESSORS.values()])


def describe_processor(processor: type[Processor]) -> ProcessorDescription:
    """One logits processor, read from its class."""
    summary, description = _documented(processor)
    return ProcessorDescription(
        name=str(processor.model_fields["name"].default),
        summary=summary,
        description=description,
        parameters=parameters(processor),
    )


def describe(mapping: type[Mapping]) -> MappingDescription:
    """One mapping, read from its class."""
    summary, description = _documented(mapping)
    return MappingDescription(
        name=str(mapping.model_fields["name"].default),
        summary=summary,
        description=description,
        shift_invariant=mapping.shift_invariant,
        monotone=mapping.monotone,
        sparse=mapping.sparse,
        parameters=parameters(mapping),
    )


def _documented(model: type[Parameters]) -> tuple[str, str]:
    """The first line of a class's docstring, and the rest."""
    summary, _, rest = inspect.cleandoc(model.__doc__ or "").partition("\n")
    return summary, rest.strip()


def parameters(model: type[Parameters]) -> list[ParameterDescription]:
    """The parameters of a registered class, its name left out."""
    properties = model.model_json_schema()["properties"]
    return [
        _parameter(model, name, field, properties[name])
        for name, field in model.model_fields.items()
        if name != "name"
    ]


def _parameter(
    model: type[Parameters], name: str, field: FieldInfo, schema: dict[str, Any]
) -> ParameterDescription:
    kinds: dict[str, Literal["per_row", "per_class", "per_row_list"]] = {
        **dict.fromkeys(model.per_row_fields(), "per_row"),
        **dict.fromkeys(model.per_class_fields(), "per_class"),
        **dict.fromkeys(model.per_row_list_fields(), "per_row_list"),
    }
    values = [leaf for leaf in _leaves(schema) if leaf.get("type") != "null"]
    single = [leaf for leaf in values if leaf.get("type") != "array"]
    shown: dict[str, Any] = (single or [_innermost(values[0])])[0]
    if "const" in shown:
        shown = {**shown, "enum": [shown["const"]]}
    bounds: dict[str, Any] = {
        ours: shown[theirs] for theirs, ours in _BOUNDS.items() if theirs in shown
    }
    return ParameterDescription(
        name=name,
        type=shown.get("type", "string"),
        kind=kinds.get(name, "static"),
        required=field.is_required(),
        default=None if field.is_required() else field.default,
        description=" ".join((field.description or "").split()),
        **bounds,
    )


def _innermost(schema: dict[str, Any]) -> dict[str, Any]:
    """What the lists of a field's JSON schema hold."""
    while schema.get("type") == "array":
        schema = schema["items"]
    return schema


def _leaves(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The alternatives of a field's JSON schema that are not themselves alternatives."""
    nested = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    if not nested:
        yield schema
    for alternative in nested:
        yield from _leaves(alternative)
