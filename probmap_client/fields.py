"""A request's fields on their way to the wire: arrays as tensors by name, the rest as JSON."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from probmap_client.body import Body
from probmap_client.errors import InvalidInput
from probmap_client.rows import RaggedRows, parameter_of
from probmap_client.safetensors import MEDIA_TYPE, written
from probmap_client.tensors import Tensor, is_array, tensor

Fields: TypeAlias = dict[str, Any]

JSON = "application/json"


def in_tensors(logits: Tensor, fields: Fields) -> tuple[str, Body]:
    """The media type and the body of a request of rows that are equally long."""
    fields, tensors = _copied(fields), {"logits": logits}
    for name, holder, key in _places(fields):
        value = parameter_of(holder[key])
        if isinstance(value, Tensor):
            tensors[name] = _fitting(name, value)
            del holder[key]
        else:
            holder[key] = value
    return MEDIA_TYPE, written(tensors, {"request": _text(fields)})


def in_json(logits: RaggedRows, fields: Fields) -> tuple[str, Body]:
    """The media type and the body of a request of rows that differ in length."""
    fields = _copied(fields)
    if not logits.is_double:
        # Every number of JSON is a double: an answer would be one too.
        fields.setdefault("dtype", "float32")
    for _, holder, key in _places(fields):
        holder[key] = _listed(holder[key])
    rows = [_masked(row.tolist(), place) for place, row in enumerate(logits.rows)]
    return JSON, Body([_text({"logits": rows, **fields}).encode()])


def _copied(fields: Fields) -> Fields:
    """The fields, in objects and lists that may be written to."""
    copied = dict(fields)
    for name in ("mapping", "jacobian"):
        if isinstance(copied.get(name), Mapping):
            copied[name] = dict(copied[name])
    chain = copied.get("processors")
    if isinstance(chain, list | tuple):
        copied["processors"] = [dict(one) if isinstance(one, Mapping) else one for one in chain]
    return copied


def _places(fields: Fields) -> Iterator[tuple[str, Fields, str]]:
    """Every field: its tensor's name, the object that holds it, and its name there."""
    for key, value in list(fields.items()):
        if isinstance(value, dict):
            yield from ((f"{key}.{name}", value, name) for name in list(value))
        elif key == "processors" and isinstance(value, list):
            for place, one in enumerate(value):
                if isinstance(one, dict):
                    yield from ((f"processors.{place}.{name}", one, name) for name in list(one))
        else:
            yield key, fields, key


def _fitting(name: str, value: Tensor) -> Tensor:
    """A tensor of a dtype that its field takes."""
    if name == "jacobian.vector" or (name == "targets" and value.array.ndim > 1):
        return value.as_floats()
    if name == "targets" and value.array.dtype.kind == "u" and value.dtype != "BF16":
        return tensor(value.array.astype("int64"))
    return value


def _listed(value: Any) -> Any:
    """A value with lists in the place of arrays."""
    if is_array(value):
        return tensor(value).numbers().tolist()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_listed(entry) for entry in value]
    return value


def _masked(row: Sequence[float], place: int) -> list[float | None]:
    """A row of logits with None where a class is masked."""
    masked = [None if number == -math.inf else number for number in row]
    if not all(number is None or math.isfinite(number) for number in masked):
        message = f"row {place} has NaN or infinity; rows that differ in length go as JSON, where "
        raise InvalidInput(message + "neither can be written", row=place)
    return masked


def _text(fields: Fields) -> str:
    try:
        return json.dumps(fields, allow_nan=False, separators=(",", ":"))
    except ValueError:
        raise InvalidInput("a field of the request is NaN or infinite; give a number") from None
