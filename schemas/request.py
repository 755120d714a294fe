"""What a request can ask for, whatever the wire it came by."""

from collections.abc import Mapping as Dict
from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    TypeAdapter,
    ValidationError,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import core_schema

from mappings.base import Mapping
from mappings.evaluate import InvalidRows
from mappings.registry import MAPPINGS, mapping_class
from schemas.errors import InvalidRequest, Loc, invalid, unknown_fields
from schemas.parameters import read_parameters

R = TypeVar("R", bound="MapRequest")

MapOutput = Literal[
    "probabilities", "log_probabilities", "support", "normalizer", "entropy", "support_size"
]
"""What /v1/map can be asked for."""

Dtype = Literal["float64", "float32"]


class _RegisteredMapping:
    """Lets a mapping that is already read pass; documents all the registered ones."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.is_instance_schema(Mapping)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        union: Any = reduce(or_, MAPPINGS.values())
        if len(MAPPINGS) > 1:
            union = Annotated[union, Field(discriminator="name")]
        objects = handler(TypeAdapter(union).core_schema)
        return {"anyOf": [{"type": "string", "enum": list(MAPPINGS)}, objects]}


class MapRequest(BaseModel):
    """What to compute of the logits."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, use_attribute_docstrings=True
    )

    mapping: Annotated[Mapping, _RegisteredMapping]
    """The mapping: an object with its name and parameters, or just its name; with just a name,
    its parameters may stand beside it in the request."""
    outputs: Annotated[list[MapOutput], Field(min_length=1)] = ["probabilities"]
    """What to answer."""
    support_limit: Annotated[int, Field(ge=1)] | None = None
    """At most so many classes a row in `support`, the most probable first (a count)."""
    invalid_rows: InvalidRows = "reject"
    """Whether rows without an answer (NaN, +inf, nothing unmasked) refuse the request, or are
    reported in `status` while the others are answered."""
    dtype: Dtype | None = None
    """The precision of the answer; by default that of the logits, which for JSON is float64."""


class MapBody(MapRequest):
    """The JSON body of /v1/map: the request and its logits."""

    model_config = ConfigDict(json_schema_extra={"additionalProperties": True})

    logits: list[float | None] | list[list[float | None]]
    """rows × classes, or one flat row; rows may differ in length; null masks a class."""


def read_request(model: type[R], body: Dict[str, object], *, widths: Sequence[int]) -> R:
    """Validates a request, its logits already taken out.

    Args:
        model: the kind of request.
        body: the request's fields; where `mapping` is just a name, also the mapping's fields.
        widths: the classes of each row of the logits that came with it (a count each).

    Raises:
        InvalidRequest: a field is unknown, missing or outside its bounds.
        InvalidParameter: a parameter does not fit the rows.
        UnknownName: no such mapping.
    """
    own = {name: value for name, value in body.items() if name in model.model_fields}
    beside = {name: value for name, value in body.items() if name not in model.model_fields}
    known = ("logits", *model.model_fields)
    name = own.get("mapping")
    if isinstance(name, str):
        own["mapping"] = _read_mapping({**beside, "name": name}, (), widths, known)
    elif beside:
        raise unknown_fields(list(beside), known, (), "a request")
    elif isinstance(name, dict):
        own["mapping"] = _read_mapping(name, ("mapping",), widths, ())
    else:
        asked = "mapping should be" if "mapping" in own else "mapping is missing; give"
        names = ", ".join(MAPPINGS)
        message = f"{asked} a name or an object with a name; there are {names}"
        raise InvalidRequest.at(("mapping",), message)
    try:
        return model.model_validate(own)
    except ValidationError as error:
        raise invalid(error, model) from None


def _read_mapping(
    fields: Dict[str, object], loc: Loc, widths: Sequence[int], known: tuple[str, ...]
) -> Mapping:
    name = fields.get("name")
    if not isinstance(name, str):
        message = f"mapping.name should be one of {', '.join(MAPPINGS)}"
        raise InvalidRequest.at(("mapping", "name"), message)
    return read_parameters(mapping_class(name), fields, loc=loc, widths=widths, known=known)
