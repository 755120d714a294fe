"""Where a mask is true. numpy finds that several times as fast on a CPU as torch does."""

import numpy as np
import torch
from torch import Tensor


def places(mask: Tensor) -> Tensor:
    """The places of the true entries of a flattened mask, (entries,) int64, ascending."""
    if mask.is_cuda:
        return mask.flatten().nonzero().squeeze(-1)
    return torch.from_numpy(np.flatnonzero(mask.numpy()))


def greater(values: Tensor, floor: Tensor) -> Tensor:
    """Which values are above the floor of their row, as a mask of the values' shape."""
    if values.is_cuda:
        return values > floor
    return torch.from_numpy(np.greater(values.numpy(), floor.numpy()))
