"""Logits in a .npy file."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from service.bulk.array_source import (
    LOGITS,
    ArraySource,
    check_classes,
    listed_by_row,
)
from service.settings import Settings
from service.wire.field_places import Fields


def npy_source(
    path: Path, fields: Fields, settings: Settings, batch_rows: int | None
) -> ArraySource:
    """The rows of a .npy file, rows × classes or one row; fields may list one value a row.

    Raises:
        ValueError: the file holds no numbers, or not in rows.
        OSError: it cannot be read.
    """

    def opened() -> Any:
        # Opened for each piece anew: what a map has read counts as memory of this process.
        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError):
            # What numpy says of it may be an invitation to unpickle it.
            raise ValueError(f"{path} is not a whole .npy file of numbers") from None
        if not isinstance(array, np.ndarray) or array.ndim not in (1, 2):
            raise ValueError(f"{path} should hold one array of numbers, rows × classes or one row")
        if array.dtype.kind not in "fiu":
            raise ValueError(
                f"{path} holds {array.dtype}; it should hold floats or integers (for bfloat16, "
                "write .safetensors)"
            )
        return np.atleast_2d(array)

    def logits(start: int, stop: int) -> Tensor:
        part = opened()[start:stop]
        is_kept = part.dtype.kind == "f" and part.dtype.itemsize <= 8
        kind = part.dtype.newbyteorder("=") if is_kept else np.dtype(np.float64)
        return torch.from_numpy(np.array(part, kind, order="C"))

    shape = opened().shape
    check_classes(path, *shape)
    fields = deepcopy(fields)
    columns = {LOGITS: logits, **listed_by_row(fields, shape[0])}
    return ArraySource(shape, columns, fields, settings, batch_rows)
