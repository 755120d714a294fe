"""Tensors that lie in a buffer, used where they are."""

import torch
from torch import Tensor

from service.wire.exchange import Body


def aligned(buffer: Body, dtype: torch.dtype, offset: int, count: int) -> Tensor:
    """The numbers (count,) at an offset of a buffer: a view, never to be written to.

    Numbers that lie across the words of memory are copied: not every processor reads those.

    Args:
        buffer: what holds them, little-endian.
        dtype: of the numbers.
        offset: where the first begins (bytes).
        count: how many there are.
    """
    if not count:
        return torch.empty(0, dtype=dtype)
    size = dtype.itemsize * count
    view = torch.frombuffer(buffer, dtype=torch.uint8, count=size, offset=offset)
    return (view.clone() if view.data_ptr() % dtype.itemsize else view).view(dtype)
