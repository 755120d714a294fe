"""Values of each row in descending order, equal ones by lower place, without a stable sort."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

LARGEST = (1 << 31) - 1
PLACE_BITS = 31
"""Bits of a key that hold the place (a count)."""


def ranked(values: Tensor, width: int | None = None) -> tuple[Tensor, Tensor]:
    """The `width` largest of each row (None: all), and their places, (rows, width) each.

    Args:
        values: (rows, any) float32 or float64, no NaN; −0 counts as 0.
        width: at most as many as there are.
    """
    width = values.shape[-1] if width is None else width
    if values.dtype != torch.float32:
        ordered, places = values.sort(dim=-1, descending=True, stable=True)
        return ordered[:, :width], places[:, :width]
    # One integer holds both the value, whose bits ascend with it, and the place.
    bits = (values + 0.0).view(torch.int32)
    heights = (bits ^ ((bits >> 31) & LARGEST)).long()
    places = torch.arange(values.shape[-1], device=values.device)
    keys = (LARGEST - heights << PLACE_BITS) + places
    if keys.is_cuda:
        keys = keys.sort(dim=-1).values[:, :width]
    else:
        keys = torch.from_numpy(_smallest(keys.numpy(), width))
    heights = (LARGEST - (keys >> PLACE_BITS)).int()
    return (heights ^ ((heights >> 31) & LARGEST)).view(torch.float32), keys & LARGEST


def descending(values: Tensor) -> Tensor:
    """The values of each row in descending order, (rows, any)."""
    return greatest(values, values.shape[-1])


def greatest(values: Tensor, count: int) -> Tensor:
    """The `count` largest values of each row in descending order, (rows, count)."""
    if values.is_cuda:
        return values.topk(count, dim=-1).values
    array = values.numpy()
    if 4 * count < array.shape[-1]:
        array = np.partition(array, -count, axis=-1)[:, -count:]
    return torch.from_numpy(np.sort(array, axis=-1)[:, -count:]).flip(-1)


def _smallest(keys: NDArray[np.int64], width: int) -> NDArray[np.int64]:
    """The smallest keys of each row in order; numpy sorts integers many times as fast as torch."""
    if 4 * width < keys.shape[-1]:
        keys = np.partition(keys, width - 1, axis=-1)[:, :width]
    return np.sort(keys, axis=-1)[:, :width]
