"""Arrays of any library as numpy's: no library but numpy is imported for it."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from probmap_client.errors import InvalidInput

DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
"""The dtypes of the wire, as numpy holds them; numpy has no bfloat16, so its bits stand for it."""

NAMES = {dtype: name for name, dtype in DTYPES.items() if name != "BF16"}

FLOATS = ("F64", "F32", "F16", "BF16")


class SupportsDLPack(Protocol):
    """An array that hands its memory over as DLPack describes it."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any:
        """The array as a capsule."""


@dataclass(frozen=True, slots=True, eq=False)
class BFloat16:
    """Numbers in bfloat16, which numpy does not have: half the bytes of float32.

    Attributes:
        bits: of each number, uint16: the upper half of a float32.
    """

    bits: NDArray[np.uint16]

    @classmethod
    def of(cls, numbers: ArrayLike) -> "BFloat16":
        """Numbers rounded to bfloat16, ties to even."""
        floats = np.asarray(numbers, dtype=np.float32)
        bits = np.ascontiguousarray(floats).view(np.uint32).reshape(floats.shape)
        # Half of the last bit kept, and no more than half where that bit is 0 already.
        rounded = (bits + (np.uint32(0x7FFF) + (bits >> 16 & 1))) >> 16
        # A NaN stays one, whichever of its bits are left.
        return cls(np.where(np.isnan(floats), 0x7FC0, rounded).astype(np.uint16))

    def floats(self) -> NDArray[np.float32]:
        """The numbers as float32, exactly."""
        return (self.bits.astype(np.uint32) << 16).view(np.float32)


Numbers: TypeAlias = ArrayLike | SupportsDLPack | BFloat16 | Sequence[Any]
"""Numbers in any form: arrays of numpy, torch, jax …, or lists; None masks a class of logits."""


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """Numbers as the wire has them.

    Attributes:
        dtype: a key of DTYPES.
        array: C-contiguous, of the dtype that DTYPES has for it.
    """

    dtype: str
    array: NDArray[Any]

    @property
    def is_float(self) -> bool:
        """Whether its numbers can be logits as they are."""
        return self.dtype in FLOATS

    def numbers(self) -> NDArray[Any]:
        """An array to compute with."""
        return BFloat16(self.array).floats() if self.dtype == "BF16" else self.array

    def as_floats(self) -> "Tensor":
        """The same numbers as floats: integers as float64."""
        return self if self.is_float else tensor(self.array.astype(np.float64))


def is_array(value: object) -> bool:
    """Whether a value is an array of some library."""
    return (
        isinstance(value, BFloat16) or hasattr(value, "__array__") or hasattr(value, "__dlpack__")
    )


def tensor(value: Any) -> Tensor:
    """An array of any library as the wire has it; its memory is shared where that is possible.

    Raises:
        InvalidInput: it does not hold numbers that the wire has.
    """
    if isinstance(value, BFloat16):
        return Tensor("BF16", np.ascontiguousarray(value.bits, dtype=DTYPES["BF16"]))
    if hasattr(value, "detach") and hasattr(value, "cpu"):
        return _of_torch(value.detach().cpu())
    array = np.asarray(value) if hasattr(value, "__array__") else np.from_dlpack(value)
    if array.dtype.name == "bfloat16":
        # The package ml_dtypes adds it to numpy; jax has it from there.
        array = np.ascontiguousarray(array)
        return Tensor("BF16", array.view(DTYPES["BF16"]))
    if array.dtype == np.longdouble:
        array = array.astype(np.float64)
    name = NAMES.get(array.dtype.newbyteorder("<"))
    if name is None:
        raise InvalidInput(f"an array of {array.dtype} does not hold numbers that can be sent")
    # A number alone has no dimension, and keeps none.
    ordered = np.ascontiguousarray(array, dtype=DTYPES[name]).reshape(array.shape)
    return Tensor(name, ordered)


def _of_torch(value: Any) -> Tensor:
    if str(value.dtype) != "torch.bfloat16":
        return tensor(value.numpy())
    # Whoever holds a tensor of torch has imported it.
    bits = value.contiguous().view(sys.modules["torch"].int16).numpy()
    return Tensor("BF16", bits.view(DTYPES["BF16"]))
