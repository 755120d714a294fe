"""What there is to choose from: the server's mappings and processors, and their parameters."""

import json
from dataclasses import dataclass, fields
from typing import Any, Generic, Literal, Protocol, Self, TypeVar

from probmap_client.body import Body
from probmap_client.errors import InvalidAnswer
from probmap_client.reply import Reply


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterDescription:
    """One parameter: its type, bounds and meaning.

    Attributes:
        name: as a request gives it.
        type: "number", "integer", "string" or "boolean": of one value.
        kind: "per_row", one value or one a row; "per_class", one a class; "per_row_list", one list
            or one a row; "static", one.
        required: whether a request must give it.
        description: what it does, and its unit.
        default: what holds when it is not given; None: off.
        minimum: the least value allowed; None: no bound, as for those that follow.
        maximum: the largest value allowed.
        exclusive_minimum: what the value must be above.
        exclusive_maximum: what the value must be below.
        multiple_of: what the value must be a multiple of.
        choices: the values there are, when there are only some.
    """

    name: str
    type: str
    kind: Literal["per_row", "per_class", "per_row_list", "static"]
    required: bool
    description: str
    default: Any = None
    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: float | None = None
    exclusive_maximum: float | None = None
    multiple_of: float | None = None
    choices: list[Any] | None = None

    @classmethod
    def of(cls, document: dict[str, Any]) -> Self:
        """The description in a server's document."""
        return cls(**_known(cls, document))


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingDescription:
    """One mapping: what it is, what it promises, what it takes.

    Attributes:
        name: as a request gives it.
        summary: what it is, in a sentence.
        description: formula, ties, limits, cost and reference.
        shift_invariant: whether adding a constant to a row's logits changes nothing.
        monotone: whether a larger logit never has a smaller probability in its row.
        sparse: whether unmasked classes can get exactly 0.
        parameters: what it takes.
    """

    name: str
    summary: str
    description: str
    shift_invariant: bool
    monotone: bool
    sparse: bool
    parameters: list[ParameterDescription]

    @classmethod
    def of(cls, document: dict[str, Any]) -> Self:
        """The description in a server's document."""
        return cls(**_known(cls, document) | _parameters(document))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorDescription:
    """One logits processor: what it keeps, what it takes.

    Attributes:
        name: as a request gives it.
        summary: what it is, in a sentence.
        description: rule, ties, limits, cost and reference.
        parameters: what it takes.
    """

    name: str
    summary: str
    description: str
    parameters: list[ParameterDescription]

    @classmethod
    def of(cls, document: dict[str, Any]) -> Self:
        """The description in a server's document."""
        return cls(**_known(cls, document) | _parameters(document))


def _known(kind: type[Any], document: dict[str, Any]) -> dict[str, Any]:
    """What a description has a place for; a newer server may tell more."""
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in document.items() if name in names}


def _parameters(document: dict[str, Any]) -> dict[str, Any]:
    return {"parameters": [ParameterDescription.of(one) for one in document["parameters"]]}


class Described(Protocol):
    """What a listing is made of."""

    @property
    def name(self) -> str:
        """As a request gives it."""

    @classmethod
    def of(cls, document: dict[str, Any]) -> Self:
        """The description in a server's document."""


D = TypeVar("D", bound=Described)


class Listing(Generic[D]):
    """The request for all that there is of one kind.

    Args:
        path: where the server lists them.
        kind: what each is described by.
    """

    method = "GET"
    accept = "application/json"
    media_type: str | None = None
    timeout: float | None = None
    body = Body()

    def __init__(self, path: str, kind: type[D]) -> None:
        self.path = path
        self._kind = kind

    def read(self, reply: Reply) -> dict[str, D]:
        """The descriptions in an answer, by their names.

        Raises:
            InvalidAnswer: there are none in it.
        """
        try:
            listed = json.loads(reply.body)[self.path.rpartition("/")[2]]
            found = [self._kind.of(document) for document in listed]
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidAnswer(f"the answer is no list of descriptions: {error}") from error
        return {one.name: one for one in found}


MAPPINGS = Listing("/v1/mappings", MappingDescription)
PROCESSORS = Listing("/v1/processors", ProcessorDescription)
