"""Columns of Arrow batches as the logits and numbers of a request."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from schemas.errors import InvalidRequest, shortened
from service.settings import Settings
from service.wire.limits import check_logits
from service.wire.numbers import Numbers

DTYPES = {
    pa.float16(): torch.float16,
    pa.float32(): torch.float32,
    pa.float64(): torch.float64,
}
"""What logits can be, as torch calls it."""


def is_list(kind: Any) -> bool:
    """Whether a column of this type has a list of its own in every row."""
    types = pa.types
    return bool(types.is_fixed_size_list(kind) or types.is_list(kind) or types.is_large_list(kind))


def is_number(kind: Any) -> bool:
    """Whether a type is of integers or of floats."""
    return pa.types.is_integer(kind) or kind in DTYPES


def read_logits(column: Any, settings: Settings) -> tuple[Tensor, list[int] | None]:
    """The logits (rows, longest), views where they can be, and each row's length where they differ.

    Args:
        column: lists of floats; a null among them masks a class.
        settings: the limits.

    Raises:
        InvalidRequest: a row is null or has no class.
        TooLarge: there are more rows, classes or logits than the limits.
    """
    rows = len(column)
    check_logits(rows, 0, settings)
    _refuse_null(column, "logits", "leave it out, or mask single classes")
    lengths = _lengths(column)
    # A batch of no rows still has the classes of its schema.
    least = column.type.list_size if pa.types.is_fixed_size_list(column.type) else 0
    longest = int(lengths.max(initial=least))
    check_logits(rows, longest, settings)
    if rows and not lengths.all():
        row = int(lengths.argmin())
        message = f"logits[{row}] has no class; give at least 1 logit a row"
        raise InvalidRequest.at(("logits", row), message)
    values = column.flatten()
    flat = _with_masks(values) if values.null_count else from_dlpack(values)
    if rows * longest == len(flat):
        return flat.reshape(rows, max(1, longest)), None
    logits = flat.new_full((rows, longest), -math.inf)
    logits[torch.arange(longest) < torch.from_numpy(lengths).unsqueeze(-1)] = flat
    return logits, lengths.tolist()


def read_numbers(column: Any, name: str) -> Numbers:
    """A column of numbers, or of lists of them, as a request's fields take them.

    Raises:
        InvalidRequest: a value is null.
    """
    _refuse_null(column, name, "give every row a value")
    lengths = None
    if is_list(column.type):
        lengths = _lengths(column)
        column = column.flatten()
        if column.null_count:
            message = f"{shortened(name)} has a list with a null; give numbers alone"
            raise InvalidRequest.at((name,), message)
    values = column.to_numpy(zero_copy_only=False)
    if values.dtype.kind == "f":
        return Numbers(values.astype(np.float64), lengths)
    return Numbers(values.astype(np.uint64 if values.dtype == np.uint64 else np.int64), lengths)


def _lengths(column: Any) -> NDArray[np.int64]:
    """(rows,) how long the lists are, none of which is null."""
    if pa.types.is_fixed_size_list(column.type):
        return np.full(len(column), column.type.list_size, np.int64)
    starts: NDArray[np.int64] = column.offsets.to_numpy().astype(np.int64)
    return np.diff(starts)


def _with_masks(values: Any) -> Tensor:
    """A flat array of floats with −inf for null."""
    dtype = DTYPES[values.type]
    flat = torch.from_numpy(values.to_numpy(zero_copy_only=False)).to(dtype)
    # To numpy a null is NaN, which a client may also have sent.
    is_given = torch.from_numpy(values.is_valid().to_numpy(zero_copy_only=False))
    return torch.where(is_given, flat, -math.inf)


def _refuse_null(column: Any, name: str, cure: str) -> None:
    if column.null_count:
        row = int(column.is_valid().to_numpy(zero_copy_only=False).argmin())
        raise InvalidRequest.at((name, row), f"{name}[{row}] is null; {cure}")
