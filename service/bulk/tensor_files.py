"""Files of tensors, each of which lies in a file of its own already."""

import shutil
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import orjson

from service.wire.safetensors_encode import ANSWER
from service.wire.safetensors_header import LENGTH_BYTES, METADATA

NAMES = {
    "<f8": "F64",
    "<f4": "F32",
    "<i8": "I64",
    "<i4": "I32",
    "|u1": "U8",
    "|b1": "BOOL",
}
"""The names that safetensors has for numpy's dtypes."""

COPIED_BYTES = 1 << 20
"""How much is copied at a time (bytes)."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor whose numbers are a file.

    Attributes:
        name: of the tensor.
        dtype: of its numbers.
        shape: its dimensions (a count each).
        path: of the file; there is none when there are no numbers.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    path: Path

    @property
    def size(self) -> int:
        """What its numbers take (bytes)."""
        return self.path.stat().st_size if self.path.exists() else 0

    def copy_to(self, file: IO[bytes]) -> None:
        """Writes its numbers."""
        if self.path.exists():
            with self.path.open("rb") as source:
                shutil.copyfileobj(source, file, COPIED_BYTES)


def write_npy(path: Path, tensor: Stored) -> None:
    """Writes one tensor as numpy's own file."""
    with path.open("wb") as file:
        _write_array(file, tensor)


def write_npz(path: Path, tensors: Sequence[Stored]) -> None:
    """Writes tensors as numpy.savez does."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for tensor in tensors:
            with archive.open(f"{tensor.name}.npy", "w", force_zip64=True) as file:
                _write_array(file, tensor)


def write_safetensors(path: Path, tensors: Sequence[Stored], answer: dict[str, Any]) -> None:
    """Writes tensors as the safetensors wire does, with what is told beside them."""
    # The widest first: each then lies where its numbers can be read in place.
    ordered = sorted(tensors, key=lambda tensor: -tensor.dtype.itemsize)
    header: dict[str, object] = {METADATA: {ANSWER: orjson.dumps(answer).decode()}}
    start = 0
    for tensor in ordered:
        stop = start + tensor.size
        header[tensor.name] = {
            "dtype": NAMES[tensor.dtype.str],
            "shape": tensor.shape,
            "data_offsets": [start, stop],
        }
        start = stop
    text = orjson.dumps(header)
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(LENGTH_BYTES, "little") + text)
        for tensor in ordered:
            tensor.copy_to(file)


def _write_array(file: IO[bytes], tensor: Stored) -> None:
    described = {
        "descr": np.lib.format.dtype_to_descr(tensor.dtype),
        "fortran_order": False,
        "shape": tensor.shape,
    }
    np.lib.format.write_array_header_1_0(file, described)
    tensor.copy_to(file)
