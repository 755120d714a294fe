"""The datatypes of tensors on the Open Inference Protocol's wire."""

from dataclasses import dataclass

import torch

BYTES = "BYTES"
"""The datatype of texts, which has no items of one size."""


@dataclass(frozen=True, slots=True)
class Datatype:
    """What a tensor's items are, little-endian.

    Attributes:
        name: the protocol's.
        dtype: torch's.
        in_json: whether items can be given as JSON numbers.
    """

    name: str
    dtype: torch.dtype
    in_json: bool = True

    @property
    def is_float(self) -> bool:
        """Whether items have a fraction."""
        return self.dtype.is_floating_point

    def bytes_of(self, count: int) -> int:
        """What so many items take (bytes)."""
        return self.dtype.itemsize * count


DATATYPES = {
    datatype.name: datatype
    for datatype in (
        Datatype("FP16", torch.float16),
        Datatype("BF16", torch.bfloat16, in_json=False),
        Datatype("FP32", torch.float32),
        Datatype("FP64", torch.float64),
        Datatype("INT8", torch.int8),
        Datatype("INT16", torch.int16),
        Datatype("INT32", torch.int32),
        Datatype("INT64", torch.int64),
        Datatype("UINT8", torch.uint8),
        Datatype("UINT16", torch.uint16),
        Datatype("UINT32", torch.uint32),
        Datatype("UINT64", torch.uint64),
    )
}
"""What inputs can be of, by name; floating ones first."""

FLOATING = tuple(name for name, datatype in DATATYPES.items() if datatype.is_float)
"""What logits can be of."""

NAMES = {datatype.dtype: name for name, datatype in DATATYPES.items()}
"""The name of each dtype that answers have."""
