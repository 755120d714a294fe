"""The safetensors format: a length, a header in JSON, and the arrays' own bytes.

The length is 8 bytes, little-endian; the header names arrays, with dtype, shape and the stretch
of the data that each takes, and holds texts under `__metadata__`.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probmap_client.body import Body
from probmap_client.errors import InvalidAnswer
from probmap_client.tensors import DTYPES, BFloat16, Tensor

MEDIA_TYPE = "application/vnd.safetensors"

LENGTH_BYTES = 8
"""What the header's length takes (bytes)."""

METADATA = "__metadata__"


def written(tensors: Mapping[str, Tensor], texts: Mapping[str, str]) -> Body:
    """A body of arrays, which are not copied, and texts, by their names."""
    # The widest first: each then lies where its numbers can be read in place.
    ordered = sorted(tensors.items(), key=lambda item: -item[1].array.itemsize)
    header: dict[str, object] = {METADATA: texts}
    start = 0
    for name, tensor in ordered:
        stop = start + tensor.array.nbytes
        header[name] = {
            "dtype": tensor.dtype,
            "shape": tensor.array.shape,
            "data_offsets": (start, stop),
        }
        start = stop
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    # Bytes cannot be seen in an array of none.
    data = [tensor.array.reshape(-1).data.cast("B") for _, tensor in ordered if tensor.array.size]
    return Body([len(text).to_bytes(LENGTH_BYTES, "little") + text, *data])


def read(body: bytearray) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """The arrays of a body, which are views of it, and its texts, by their names.

    Raises:
        InvalidAnswer: it is not what the format says.
    """
    try:
        data = LENGTH_BYTES + int.from_bytes(body[:LENGTH_BYTES], "little")
        header = json.loads(bytes(body[LENGTH_BYTES:data]))
        texts = header.pop(METADATA, {})
        arrays = {name: _array(body, data, entry) for name, entry in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidAnswer(f"the answer is not valid safetensors: {error}") from error
    return arrays, texts


def _array(body: bytearray, data: int, entry: Mapping[str, Any]) -> NDArray[Any]:
    start, stop = entry["data_offsets"]
    shape, dtype = tuple(entry["shape"]), DTYPES[entry["dtype"]]
    count = math.prod(shape)
    if count * dtype.itemsize != stop - start or not 0 <= start <= stop <= len(body) - data:
        raise ValueError(f"an array of {shape} {dtype} at bytes {start} to {stop}")
    # Where there is nothing, there may be no place for it either.
    flat = np.frombuffer(body, dtype, count, data + start) if count else np.empty(0, dtype)
    array = flat.reshape(shape)
    return BFloat16(array).floats() if entry["dtype"] == "BF16" else array
