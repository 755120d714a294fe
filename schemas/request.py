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
from torch import Tensor

from mappings.answer import Derivatives
from mappings.base import Mapping
from mappings.evaluate import InvalidRows
from mappings.evaluation import LossOutput, MapOutput, Output, SampleOutput
from mappings.jacobian import Form
from mappings.losses import Kind, Targets
from mappings.parameters import Parameters, PerRow, Seed
from mappings.processor import Processor
from mappings.registry import MAPPINGS, PROCESSORS
from mappings.sampling import MAX_SAMPLES, Draws
from schemas.errors import InvalidRequest, invalid, unknown_fields
from schemas.parameters import read_named

R = TypeVar("R", bound="Request")

Dtype = Literal["float64", "float32"]

MAX_PROCESSORS = 32
"""The longest chain of processors (a count)."""


class _Registered:
    """Lets what is already read pass; documents everything that is registered."""

    def __init__(self, base: type[Parameters], registry: Dict[str, type[Parameters]]) -> None:
        self.base = base
        self.registry = registry

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.is_instance_schema(self.base)

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        union: Any = reduce(or_, self.registry.values())
        if len(self.registry) > 1:
            union = Annotated[union, Field(discriminator="name")]
        objects = handler(TypeAdapter(union).core_schema)
        return {"anyOf": [{"type": "string", "enum": list(self.registry)}, objects]}


class _Rows:
    """Lets a tensor that is already read pass; documents it as rows of numbers."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.is_instance_schema(Tensor)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        row = {"type": "array", "items": {"type": "number"}}
        return {"anyOf": [row, {"type": "array", "items": row}]}


class JacobianRequest(BaseModel):
    """Which derivatives ∂p_i/∂x_j to answer."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, use_attribute_docstrings=True
    )

    form: Form = "dense"
    """dense: rows × n × n; support: among the support's classes; factors: diag(d) − L Rᵀ; jvp
    and vjp: J v and Jᵀ v."""
    vector: Annotated[Tensor, _Rows] | None = None
    """rows × classes: v of jvp and vjp."""


class Request(BaseModel):
    """What to compute of the logits, whatever the endpoint."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, use_attribute_docstrings=True
    )

    mapping: Annotated[Mapping, _Registered(Mapping, MAPPINGS)]
    """The mapping: an object with its name and parameters, or just its name; with just a name,
    its parameters may stand beside it in the request."""
    processors: Annotated[
        list[Annotated[Processor, _Registered(Processor, PROCESSORS)]],
        Field(max_length=MAX_PROCESSORS),
    ] = []
    """Steps the logits take before the mapping, in this order."""
    outputs: Sequence[Output]
    """What to answer."""
    support_limit: Annotated[int, Field(ge=1)] | None = None
    """At most so many classes a row in `support`, the most probable first (a count)."""
    jacobian: JacobianRequest | None = None
    """The form of the output "jacobian", which is then answered also when it is not listed."""
    invalid_rows: InvalidRows = "reject"
    """Whether rows without an answer (NaN, +inf, nothing unmasked) refuse the request, or are
    reported in `status` while the others are answered."""
    dtype: Dtype | None = None
    """The precision of the answer; by default that of the logits, which for JSON is float64."""

    def wanted(self) -> frozenset[Output]:
        """All the outputs asked for."""
        named = frozenset(self.outputs)
        return named if self.jacobian is None else named | {"jacobian"}

    def derivatives(self) -> Derivatives:
        """The form of the Jacobian."""
        asked = self.jacobian or JacobianRequest()
        return Derivatives(asked.form, asked.vector)

    def draws(self) -> Draws | None:
        """The draws to make."""
        return None

    def aims(self) -> Targets | None:
        """The targets of a loss."""
        return None


class MapRequest(Request):
    """What /v1/map computes of the logits."""

    outputs: Annotated[list[MapOutput], Field(min_length=1)] = ["probabilities"]


class SampleRequest(Request):
    """What /v1/sample computes of the logits."""

    outputs: Annotated[list[SampleOutput], Field(min_length=1)] = [
        "tokens",
        "token_log_probabilities",
    ]
    samples: Annotated[int, Field(ge=1, le=MAX_SAMPLES)] = 1
    """Tokens drawn from each row (a count)."""
    seed: PerRow[Seed] | None = None
    """What the draws are made from, one for all rows or one a row (unsigned 64-bit); without it
    the server draws one, and returns it."""
    replacement: bool = True
    """Whether a class can be drawn again."""

    def draws(self) -> Draws:
        """The draws to make; the seed must be there by now."""
        assert self.seed is not None
        return Draws(seed=self.seed, samples=self.samples, replacement=self.replacement)


class LossRequest(Request):
    """What /v1/loss computes of the logits."""

    outputs: Annotated[list[LossOutput], Field(min_length=1)] = ["loss", "gradient"]
    targets: Annotated[Tensor, _Rows]
    """Class ids, one a row, or rows × classes distributions."""
    kind: Kind = "natural"
    """natural: the mapping's own loss; accuracy: −p of the target; stop_gradient:
    ⟨p − target, x⟩ with p held constant."""

    def aims(self) -> Targets:
        """The targets of the loss."""
        return Targets(self.targets, self.kind)


class _Logits(BaseModel):
    """What a JSON body has beside the request."""

    model_config = ConfigDict(
        json_schema_extra={"additionalProperties": True}, use_attribute_docstrings=True
    )

    logits: list[float | None] | list[list[float | None]]
    """rows × classes, or one flat row; rows may differ in length; null masks a class."""


class MapBody(_Logits, MapRequest):
    """The JSON body of /v1/map: the request and its logits."""


class SampleBody(_Logits, SampleRequest):
    """The JSON body of /v1/sample: the request and its logits."""


class LossBody(_Logits, LossRequest):
    """The JSON body of /v1/loss: the request and its logits."""


def read_request(model: type[R], body: Dict[str, object], *, widths: Sequence[int]) -> R:
    """Validates a request, its logits already taken out.

    Args:
        model: the kind of request.
        body: the request's fields, a Jacobian's vector and targets as tensors; where `mapping`
            is just a name, also the mapping's fields.
        widths: the classes of each row of the logits that came with it (a count each).

    Raises:
        InvalidRequest: a field is unknown, missing or outside its bounds.
        InvalidParameter: a parameter does not fit the rows.
        UnknownName: no such mapping or processor.
    """
    own = {name: value for name, value in body.items() if name in model.model_fields}
    beside = {name: value for name, value in body.items() if name not in model.model_fields}
    known = ("logits", *model.model_fields)
    name = own.get("mapping")
    if isinstance(name, str):
        _refuse_hidden(model, name)
        fields = {**beside, "name": name}
        own["mapping"] = read_named(MAPPINGS, fields, loc=(), widths=widths, known=known)
    elif beside:
        raise unknown_fields(list(beside), known, (), "a request")
    else:
        own["mapping"] = read_named(MAPPINGS, name, loc=("mapping",), widths=widths)
    asked = own.get("jacobian")
    if isinstance(asked, dict):
        choices = list(JacobianRequest.model_fields)
        unknown = [field for field in asked if field not in choices]
        if unknown:
            raise unknown_fields(unknown, choices, ("jacobian",), "jacobian")
    chain = own.get("processors")
    if isinstance(chain, list):
        own["processors"] = [
            read_named(PROCESSORS, entry, loc=("processors", place), widths=widths)
            for place, entry in enumerate(chain[: MAX_PROCESSORS + 1])
        ]
    try:
        request = model.model_validate(own)
    except ValidationError as error:
        raise invalid(error) from None
    _check(request, widths)
    return request


def _refuse_hidden(model: type[Request], name: str) -> None:
    """Raises the error of a required field of the mapping that the request's own one hides."""
    fields = MAPPINGS[name].model_fields if name in MAPPINGS else {}
    for hidden in model.model_fields:
        if hidden in fields and fields[hidden].is_required():
            message = (
                f"{hidden} beside the mapping's name is the request's, and {name} needs one of its "
                f'own; give the mapping as an object: {{"name": "{name}", "{hidden}": …}}'
            )
            raise InvalidRequest.at(("mapping", hidden), message)


def _check(request: Request, widths: Sequence[int]) -> None:
    """Raises the error of what does not fit the rows."""
    if isinstance(request, SampleRequest) and isinstance(request.seed, list):
        request.draws().check_rows(len(widths))
    targets, asked = request.aims(), request.jacobian
    if targets is not None:
        targets.check(widths)
    if asked is not None and asked.form in ("jvp", "vjp") and asked.vector is None:
        message = f"jacobian.vector is missing; {asked.form} needs one, rows × classes"
        raise InvalidRequest.at(("jacobian", "vector"), message)
