"""Lists as arrays: logits with None for a masked class, and parameters of one value a row."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probmap_client.errors import InvalidInput
from probmap_client.tensors import BFloat16, Tensor, is_array, tensor

FILLING = -1
"""Fills the rows of class ids that are shorter than the longest; the server drops it."""


@dataclass(frozen=True, slots=True, eq=False)
class RaggedRows:
    """Rows of different lengths.

    Attributes:
        rows: of each its numbers, (classes,).
        is_double: whether any of them came as float64, or as Python's numbers.
    """

    rows: list[NDArray[Any]]
    is_double: bool


def logits_of(value: Any) -> Tensor | RaggedRows:
    """Logits as the wire has them: (rows, classes), one row (classes,), or rows that differ.

    Integers and lists become float64; None, and what a masked array of numpy masks, −inf.

    Raises:
        InvalidInput: it does not hold numbers, or not in rows.
    """
    if isinstance(value, np.ma.MaskedArray):
        floats = value.dtype if value.dtype.kind == "f" else np.float64
        value = np.where(np.ma.getmaskarray(value), -np.inf, value.data).astype(floats)
    if is_array(value):
        found = tensor(value)
        if found.dtype == "BOOL":
            raise InvalidInput("logits are True and False; give numbers")
        return found.as_floats()
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise InvalidInput(f"logits should be an array or lists of numbers, not {type(value)}")
    if not any(_is_row(entry) for entry in value):
        return tensor(_masked(value, None))
    rows = [_row(entry, place) for place, entry in enumerate(value)]
    dtypes = {row.dtype for row in rows}
    if len({len(row.array) for row in rows}) > 1:
        return RaggedRows([row.numbers() for row in rows], "F64" in dtypes)
    if dtypes == {"BF16"}:
        return tensor(BFloat16(np.stack([row.array for row in rows])))
    return tensor(np.stack([row.numbers() for row in rows]))


def _is_row(value: object) -> bool:
    """Whether an entry of a list is a row, not a number of one."""
    if is_array(value):
        return bool(getattr(value, "ndim", 1))
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _row(value: Any, place: int) -> Tensor:
    row = tensor(value).as_floats() if is_array(value) else tensor(_masked(value, place))
    if row.array.ndim != 1:
        raise InvalidInput(
            f"row {place} of the logits has {row.array.ndim} dimensions; give one", row=place
        )
    return row


def _masked(row: Any, place: int | None) -> NDArray[np.float64]:
    """A list of numbers, some of them None, as an array."""
    where = "logits" if place is None else f"row {place} of the logits"
    if not isinstance(row, Sequence) or isinstance(row, str | bytes):
        raise InvalidInput(f"{where} is a {type(row).__name__}; give a list of numbers", row=place)
    kept = [-np.inf if number is None else number for number in row]
    found = as_numbers(kept)
    if found is None or found.ndim != 1 or found.dtype == bool:
        raise InvalidInput(f"{where} should hold numbers, or None where masked", row=place)
    return found.astype(np.float64, copy=False)


def parameter_of(value: Any) -> Any:
    """A field of a request: an array where it is one or a list of numbers, else as it is.

    Rows of numbers that differ in length are filled with −1, as class ids may be.
    """
    if isinstance(value, BFloat16):
        return tensor(value)
    if is_array(value):
        found = tensor(value)
        return found if found.array.ndim else found.numbers().item()
    if not isinstance(value, list | tuple) or not value:
        return value
    rows = [parameter_of(entry) for entry in value if _is_row(entry)]
    if not rows:
        numbers = as_numbers(value)
        if numbers is None or numbers.dtype == bool:
            return list(value)
        if numbers.dtype.kind == "f" and all(isinstance(number, int) for number in value):
            # Numpy would round whole numbers of 64 bits, such as seeds, beside small ones.
            return tensor(np.array(value, np.uint64)) if min(value) >= 0 else list(value)
        return tensor(numbers)
    if len(rows) < len(value) or not all(isinstance(row, Tensor) for row in rows):
        return list(value)
    arrays = [row.numbers() for row in rows]
    if any(array.ndim != 1 for array in arrays):
        return list(value)
    dtype = np.result_type(*arrays)
    signed = np.dtype(np.int64) if dtype.kind == "u" else dtype
    whole = np.full((len(rows), max(map(len, arrays))), FILLING, signed)
    for place, array in enumerate(arrays):
        whole[place, : len(array)] = array
    return tensor(whole)


def as_numbers(values: Sequence[Any]) -> NDArray[Any] | None:
    """A list as an array (n,) of its numbers; None where it holds anything else."""
    try:
        array = np.asarray(values)
    except ValueError:
        return None
    return array if array.dtype.kind in "biuf" else None
