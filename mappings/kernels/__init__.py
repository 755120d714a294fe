"""Kernels for GPUs, in the Triton language; torch is the reference, and the path everywhere else.

Each stands for a few lines of torch in the module that calls it, asks the same and answers the
same within rounding. What a kernel adds up, it adds in an order that depends on class ids alone,
so a row has the same bits in any batch. Triton is imported only where there is a GPU to use it.
"""

from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from mappings.compact import Kept


@cache
def available(device: torch.device) -> bool:
    """Whether tensors on this device are for the kernels: a CUDA device, and Triton installed."""
    return device.type == "cuda" and find_spec("triton") is not None


def shares(logits: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Softmax: the maxima, the probabilities and the sums; see `exponentials.shares`."""
    from mappings.kernels import exponentials

    return exponentials.shares(logits, temperature)


def candidates(logits: Tensor, reach: Tensor) -> "Kept":
    """The classes within reach of their row's maximum; see `nearest.candidates`."""
    from mappings.kernels import nearest

    return nearest.candidates(logits, reach)


def simplex_threshold(scores: Tensor, steps: int) -> Tensor:
    """The threshold of the projection onto the simplex; see `thresholds.simplex_threshold`."""
    from mappings.kernels import thresholds

    return thresholds.simplex_threshold(scores, steps)


def entmax_shift(scores: Tensor, beta: Tensor, limit: float, steps: int) -> Tensor:
    """The root of entmax for β ≤ 1; see `thresholds.entmax_shift`."""
    from mappings.kernels import thresholds

    return thresholds.entmax_shift(scores, beta, limit, steps)


def drawn(masses: Tensor, seed: Tensor, samples: int, stream: int) -> Tensor:
    """The places of seeded draws; see `draws.drawn`."""
    from mappings.kernels import draws

    return draws.drawn(masses, seed, samples, stream)


def heaviest(values: Tensor, masses: Tensor, total: Tensor, tail: Tensor) -> tuple[Tensor, Tensor]:
    """Where the fewest classes that hold enough end; see `cuts.heaviest`."""
    from mappings.kernels import cuts

    return cuts.heaviest(values, masses, total, tail)


def nth_largest(values: Tensor, counts: Tensor) -> Tensor:
    """The last of the `counts` largest; see `cuts.nth_largest`."""
    from mappings.kernels import cuts

    return cuts.nth_largest(values, counts)
