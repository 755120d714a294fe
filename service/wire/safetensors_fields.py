"""Tensors in the place of a request's fields, by their names."""

from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from schemas.errors import InvalidRequest, Loc, path
from schemas.request import Request
from service.errors import MalformedBody
from service.wire.field_places import Fields, place_of

NOTHING = -1
"""Fills the rows of a tensor of class ids that name fewer than the longest."""


def add_tensors(
    fields: Fields, tensors: dict[str, Tensor], model: type[Request], widths: Sequence[int]
) -> None:
    """Adds every tensor to the fields that came as JSON.

    Args:
        fields: the request's, without logits; added to.
        tensors: by name; views are made of them, and copies of small ones.
        model: the kind of request.
        widths: the classes of each row of logits (a count each).

    Raises:
        InvalidRequest: a tensor stands for no field, for one that is given, or has no fit shape.
        MalformedBody: a tensor has a dtype that its field cannot take.
    """
    for name, tensor in tensors.items():
        holder, loc = place_of(fields, name, model)
        holder[str(loc[-1])] = _value(tensor, loc, widths)
    chain = fields.get("processors")
    for entry in chain if isinstance(chain, list) else ():
        if isinstance(entry, dict):
            _drop_filling(entry)


def _value(tensor: Tensor, loc: Loc, widths: Sequence[int]) -> Any:
    """A tensor as its field takes it: a number, an array, a list of arrays, or a tensor."""
    if loc == ("targets",):
        return _targets(tensor, widths)
    if loc == ("jacobian", "vector"):
        return _per_class(tensor, loc, widths)
    if tensor.ndim > 2:
        message = f"{path(loc)} has {tensor.ndim} dimensions; give one value, or one a row"
        raise InvalidRequest.at(loc, message)
    if loc == ("seed",) and tensor.ndim and tensor.shape != (len(widths),):
        message = f"seed has the shape {list(tensor.shape)} for {len(widths)} rows; "
        raise InvalidRequest.at(loc, message + "give one, or one a row")
    if tensor.ndim == 0:
        return tensor.item()
    # numpy has no bfloat16.
    array = (tensor.double() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return array if tensor.ndim == 1 else list(array)


def _targets(tensor: Tensor, widths: Sequence[int]) -> Tensor:
    """Class ids (rows,) int64, or distributions (rows, classes)."""
    if tensor.is_floating_point():
        return _per_class(tensor, ("targets",), widths)
    if tensor.dtype in (torch.bool, torch.uint64):
        raise MalformedBody("targets should be I64 class ids, or one distribution a row of floats")
    if tensor.ndim > 1:
        message = "targets of integers are class ids, one a row; give distributions as floats"
        raise InvalidRequest.at(("targets",), message)
    return tensor.reshape(-1).to(torch.int64)


def _per_class(tensor: Tensor, loc: Loc, widths: Sequence[int]) -> Tensor:
    """Numbers for every class of every row, (rows, classes)."""
    if not tensor.is_floating_point():
        raise MalformedBody(f"{path(loc)} should be F16, BF16, F32 or F64")
    rows, classes = len(widths), max(widths, default=1)
    if tensor.ndim == 1:
        tensor = tensor.unsqueeze(0)
    if rows == 0 == tensor.numel():
        tensor = tensor.new_zeros(0, classes)
    if tensor.shape != (rows, classes):
        message = f"{path(loc)} has the shape {list(tensor.shape)}; it should be {[rows, classes]}"
        raise InvalidRequest.at(loc, message)
    wrong = (~tensor.isfinite()).nonzero()
    if len(wrong):
        where = (*loc, *wrong[0].tolist())
        raise InvalidRequest.at(where, f"{path(where)} is not finite; it should be a number")
    return tensor


def _drop_filling(processor: Fields) -> None:
    """Takes the class ids that name nothing, and what stands beside them, out of their rows."""
    rows = processor.get("ids")
    if not _is_rows(rows):
        return
    kept = [row != NOTHING for row in rows]
    if all(keep.all() for keep in kept):
        return
    for name, beside in processor.items():
        if _is_rows(beside) and [len(row) for row in beside] == [len(row) for row in rows]:
            pairs = zip(beside, kept, strict=True)
            processor[name] = [row[keep] for row, keep in pairs]


def _is_rows(value: object) -> TypeGuard[list[NDArray[Any]]]:
    return isinstance(value, list) and bool(value) and isinstance(value[0], np.ndarray)
