"""Reads named parameter sets (a mapping and its fields) from what a client sent."""

from collections.abc import Mapping as Dict
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from pydantic import ValidationError

from mappings.base import Parameters
from mappings.errors import InvalidParameter
from schemas.errors import InvalidRequest, Loc, invalid, path, unknown_fields

P = TypeVar("P", bound=Parameters)

ALIASES = {"α": "alpha", "λ": "lam", "lambda": "lam", "ε": "epsilon", "τ": "temperature"}
"""Other names under which a field is found, where the mapping has that field."""


def read_parameters(
    model: type[P], fields: Dict[str, object], *, loc: Loc, rows: int, known: Sequence[str] = ()
) -> P:
    """Validates the fields of one mapping.

    Args:
        model: the registered class.
        fields: its parameters by name, as the client sent them; lists may be numpy arrays.
        loc: where in the request they stand.
        rows: the rows of logits, which per-row lists must match (a count).
        known: names that are also understood at this place, listed when a name is not.

    Raises:
        InvalidRequest: names are unknown or given twice, or values are outside their bounds.
        InvalidParameter: a per-row list has another length than there are rows.
    """
    named = _renamed(model, fields, loc)
    unknown = [name for name in named if name not in model.model_fields]
    if unknown:
        choices = [name for name in model.model_fields if name != "name"]
        about = str(model.model_fields["name"].default)
        raise unknown_fields(unknown, (*known, *choices), loc, about)
    _convert_arrays(model, named, loc, rows)
    try:
        return model.model_validate(named)
    except ValidationError as error:
        raise invalid(error, model, loc) from None


def _convert_arrays(model: type[Parameters], named: dict[str, Any], loc: Loc, rows: int) -> None:
    """Turns numpy arrays into what the fields take, after the cheap checks of their shape."""
    for name in model.per_row_fields():
        value = named.get(name)
        where = (*loc, name)
        if isinstance(value, np.ndarray | list) and len(value) != rows:
            message = f"{path(where)} has {len(value)} values for {rows} rows; "
            raise InvalidParameter.at(where, message + "give one, or one a row")
        if isinstance(value, np.ndarray):
            if value.ndim != 1:
                message = f"{path(where)} should be a number, or a list of one number a row"
                raise InvalidRequest.at(where, message)
            named[name] = value.tolist()
    for name in model.per_class_fields():
        value = named.get(name)
        if isinstance(value, np.ndarray):
            # A tensor, as a list of so many numbers would hold up every other thread.
            named[name] = torch.from_numpy(value.astype(np.float64, copy=False))


def _renamed(model: type[Parameters], fields: Dict[str, object], loc: Loc) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for name, value in fields.items():
        field = ALIASES.get(name, name)
        if name not in model.model_fields and field in model.model_fields:
            name = field
        if name in named:
            where = (*loc, name)
            raise InvalidRequest.at(where, f"{path(where)} is given twice; give it once")
        named[name] = value
    return named
