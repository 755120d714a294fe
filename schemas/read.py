"""Reads a request from what a client sent, its logits already taken out."""

from collections.abc import Mapping as Dict
from collections.abc import Sequence
from typing import TypeVar

from pydantic import ValidationError

from mappings.registry import MAPPINGS, PROCESSORS
from schemas.errors import InvalidRequest, invalid, unknown_fields
from schemas.parameters import read_named
from schemas.request import MAX_PROCESSORS, JacobianRequest, Request, SampleRequest

R = TypeVar("R", bound=Request)


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
        targets.check(widths, max(widths, default=1))
    if asked is not None and asked.form in ("jvp", "vjp") and asked.vector is None:
        message = f"jacobian.vector is missing; {asked.form} needs one, rows × classes"
        raise InvalidRequest.at(("jacobian", "vector"), message)
