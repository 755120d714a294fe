"""The header of a safetensors body, read as if its sender meant harm.

A body is a length (8 bytes, little-endian, unsigned), that many bytes of JSON, and data. The JSON
names tensors, with dtype, shape and the stretch of the data each takes; `__metadata__` holds
texts. The stretches must cover the data without holes or overlaps, and no name may come twice.
"""

import json
import math
from collections.abc import Mapping as Dict
from dataclasses import dataclass
from typing import Any

import orjson
import torch
from torch import Tensor

from schemas.errors import shortened
from service.errors import MalformedBody
from service.wire.aligned import aligned
from service.wire.exchange import Body

LENGTH_BYTES = 8
"""What the header's length takes (bytes)."""

MAX_HEADER_BYTES = 1 << 20
"""The longest header (bytes): what is long in a request belongs in tensors."""

MAX_DIMENSIONS = 8
"""The most dimensions of a tensor (a count)."""

LARGEST = 1 << 60
"""What sizes and places stay below (a count): of 8 bytes each, more do not fit 63 bits."""

METADATA = "__metadata__"
"""The header's entry that holds texts."""

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""The dtypes that are read, by their names in the format."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of a body.

    Attributes:
        dtype: of its numbers.
        shape: its dimensions (a count each).
        start: where its bytes begin, counted from the start of the data.
        stop: where they end.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    stop: int

    def view(self, body: Body, data: int) -> Tensor:
        """The tensor, as a view of the body whose data begin at `data`; never to be written to."""
        flat = aligned(body, self.dtype, data + self.start, math.prod(self.shape))
        return flat.reshape(self.shape)


@dataclass(frozen=True, slots=True)
class Contents:
    """What a body holds.

    Attributes:
        tensors: by name, views of the body.
        metadata: its texts.
    """

    tensors: dict[str, Tensor]
    metadata: Dict[str, str]


def contents(body: Body) -> Contents:
    """What a safetensors body holds.

    Raises:
        MalformedBody: it breaks a rule of the format.
    """
    size = int.from_bytes(body[:LENGTH_BYTES], "little")
    data = LENGTH_BYTES + size
    if len(body) < LENGTH_BYTES or data > len(body):
        raise _malformed("its header ends behind the body")
    if size > MAX_HEADER_BYTES:
        raise _malformed(
            f"its header has {size:,} bytes, more than {MAX_HEADER_BYTES:,}; give long lists as "
            "tensors"
        )
    entries, metadata = read_header(bytes(body[LENGTH_BYTES:data]), len(body) - data)
    tensors = {name: entry.view(body, data) for name, entry in entries.items()}
    return Contents(tensors, metadata)


def read_header(text: bytes, data_bytes: int) -> tuple[dict[str, Entry], dict[str, str]]:
    """The entries of the tensors by name, and the texts, of a header that so much data follows.

    Raises:
        MalformedBody: it breaks a rule of the format.
    """
    header = _parsed(text)
    metadata = header.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(
        isinstance(text, str) for text in metadata.values()
    ):
        raise _malformed(f"{METADATA} should hold texts by name")
    entries = {name: _entry(name, value) for name, value in header.items()}
    _check_cover(entries, data_bytes)
    return entries, metadata


def _malformed(reason: str) -> MalformedBody:
    return MalformedBody(f"the body is not valid safetensors: {reason}")


def _parsed(text: bytes) -> dict[str, Any]:
    if not text.startswith(b"{"):
        raise _malformed("its header should begin with {")
    try:
        # The one is strict, the other sees when a name comes twice; neither does both.
        orjson.loads(text)
        header = json.loads(text, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError):
        raise _malformed("its header is not valid JSON") from None
    assert isinstance(header, dict)
    return header


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _malformed(f"the name {shortened(name)} comes twice in its header")
        found[name] = value
    return found


def _entry(name: str, value: object) -> Entry:
    """A tensor's entry, its numbers checked against each other, but not against the body."""
    who = f"tensor {shortened(name)}"
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise _malformed(f"{who} should have dtype, shape and data_offsets, and nothing else")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise _malformed(f"{who} has an unknown dtype; there are {', '.join(DTYPES)}")
    if not _are_counts(shape) or len(shape) > MAX_DIMENSIONS:
        raise _malformed(f"{who} should have a shape of at most {MAX_DIMENSIONS} whole numbers")
    if not _are_counts(offsets) or len(offsets) != 2:
        raise _malformed(f"{who} should have two whole numbers as data_offsets")
    start, stop = offsets
    if math.prod(max(1, size) for size in shape) >= LARGEST:
        raise _malformed(f"{who} has too large a shape")
    needed = math.prod(shape) * DTYPES[dtype].itemsize
    if stop - start != needed:
        raise _malformed(f"{who} takes another number of bytes than its shape and dtype say")
    return Entry(DTYPES[dtype], tuple(shape), start, stop)


def _are_counts(value: object) -> bool:
    """Whether a value is a list of whole numbers below LARGEST; true and false are none."""
    return isinstance(value, list) and all(
        type(entry) is int and 0 <= entry < LARGEST for entry in value
    )


def _check_cover(entries: Dict[str, Entry], size: int) -> None:
    """Raises the error of data that tensors leave out, share or go beyond."""
    reached = 0
    ordered = sorted(entries.items(), key=lambda item: (item[1].start, item[1].stop))
    for name, entry in ordered:
        if entry.start != reached:
            what = "a hole before" if entry.start > reached else "an overlap at"
            raise _malformed(f"its data have {what} tensor {shortened(name)}")
        reached = entry.stop
    if reached != size:
        raise _malformed(f"its tensors take {reached:,} bytes, but {size:,} bytes of data follow")
