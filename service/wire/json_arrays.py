"""The number arrays of a JSON request as tensors: logits, targets, vectors."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from schemas.errors import InvalidRequest, Loc, path
from service.settings import Settings
from service.wire.limits import check_logits
from service.wire.numbers import Numbers, numbers


def read_logits(value: object, settings: Settings) -> tuple[Tensor, list[int] | None]:
    """The logits (rows, longest) in float64, and each row's length where they differ."""
    array = numbers(value, ("logits",), settings)
    if array.lengths is None:
        # An empty array is a batch of no rows; a row without a class would be [[]].
        rows = 1 if len(array.values) else 0
        array = Numbers(array.values, np.full(rows, len(array.values)))
    lengths = array.lengths
    assert lengths is not None
    longest = int(lengths.max(initial=0))
    check_logits(len(lengths), longest, settings)
    if len(lengths) and not lengths.all():
        row = int(lengths.argmin())
        message = f"logits[{row}] has no class; give at least 1 logit a row"
        raise InvalidRequest.at(("logits", row), message)
    values = array.padded(-math.inf).astype(np.float64, copy=False)
    ragged = bool((lengths != longest).any())
    logits = torch.from_numpy(values.reshape(len(lengths), max(1, longest)))
    return logits, lengths.tolist() if ragged else None


def read_vector(value: object, widths: Sequence[int], settings: Settings) -> Tensor:
    """What a Jacobian is multiplied with, (rows, longest)."""
    loc = ("jacobian", "vector")
    return _per_class(numbers(value, loc, settings), loc, widths)


def read_targets(value: object, widths: Sequence[int], settings: Settings) -> Tensor:
    """Class ids (rows,), or distributions (rows, longest)."""
    loc = ("targets",)
    array = numbers([value] if type(value) is int else value, loc, settings)
    values, whole = array.values, array.values.dtype.kind != "f"
    # One number for one class is the distribution 1.0, or the class id 0.
    one_row = len(widths) == 1 and len(values) == widths[0] and not (whole and widths[0] == 1)
    if array.lengths is not None or one_row:
        return _per_class(array, loc, widths)
    _refuse_null(array, loc)
    if len(values) and not whole:
        message = "targets should be class ids, which are integers, or one distribution a row"
        raise InvalidRequest.at(loc, message)
    return torch.from_numpy(np.minimum(values, np.iinfo(np.int64).max).astype(np.int64))


def _per_class(array: Numbers, loc: Loc, widths: Sequence[int]) -> Tensor:
    """Numbers given for every class of every row, (rows, longest); 0 where a row has none."""
    _refuse_null(array, loc)
    flat = [len(array.values)] if len(array.values) else []
    given = flat if array.lengths is None else array.lengths.tolist()
    if len(given) != len(widths):
        message = f"{path(loc)} has {len(given)} rows for {len(widths)} rows of logits"
        raise InvalidRequest.at(loc, message)
    for row, (count, classes) in enumerate(zip(given, widths, strict=True)):
        if count != classes:
            where = (*loc, row)
            message = f"{path(where)} has {count} numbers for {classes} classes"
            raise InvalidRequest.at(where, message)
    values = array.padded(0.0).astype(np.float64, copy=False)
    return torch.from_numpy(values.reshape(len(widths), max(1, max(widths, default=0))))


def _refuse_null(array: Numbers, loc: Loc) -> None:
    """Raises the error of an array of which a number is missing."""
    missing = np.flatnonzero(np.isinf(array.values))
    if len(missing):
        place = int(missing[0])
        where: Loc = (*loc, place)
        if array.lengths is not None:
            starts = array.lengths.cumsum()
            row = int(starts.searchsorted(place, side="right"))
            where = (*loc, row, place - int(starts[row] - array.lengths[row]))
        raise InvalidRequest.at(where, f"{path(where)} is null; it should be a number")
