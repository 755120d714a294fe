"""Softmax of logits at a temperature, for float32 logits in float32 wherever that is enough."""

from functools import cache

import torch
from torch import Tensor

from mappings import kernels
from mappings.gibbs import Slope, gibbs, inverse
from mappings.rows import (
    LOWEST,
    block_sums,
    exponential_,
    maximum,
    pairwise_sum,
    row_sum,
    scaled,
)
from mappings.solution import Solution

AT_ONCE = 1 << 21
"""Logits taken together (a count): what is read again comes from the last cache."""


def boltzmann(logits: Tensor, temperature: Tensor) -> Solution:
    """The distribution in proportion to e^{x/T}; its normalizer is log Σ e^{x/T}.

    Args:
        logits: (rows, kept) float32 or float64, −inf where masked.
        temperature: (rows, 1) float64; 0 shares the mass among the maxima.
    """
    top, masses, total = _shares(logits, temperature)
    offset = top.double() / temperature

    @cache
    def exact() -> Solution:
        scores = scaled(logits, top, temperature)
        return gibbs(scores, Slope(inverse(temperature)), offset=offset)

    def log_pullback(weights: Tensor) -> Tensor:
        pull = exact().log_pullback
        assert pull is not None
        return pull(weights)

    return Solution(
        probabilities=masses,
        log_probabilities=lambda: exact().log_probabilities(),
        jacobian=lambda: exact().jacobian(),
        normalizer=(offset + total.log()).squeeze(-1),
        log_pullback=log_pullback,
    )


def _shares(logits: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The maxima, the softmax in the dtype of the logits, the float64 sum of its exponentials."""
    if kernels.available(logits.device):
        return kernels.shares(logits, temperature)
    top = maximum(logits)
    masses = torch.empty_like(logits)
    total = torch.empty_like(temperature)
    step = max(1, AT_ONCE // logits.shape[-1])
    for part in zip(
        *(t.split(step) for t in (logits, top, temperature, masses, total)), strict=True
    ):
        values, peak, pace, out, sums = part
        wide = (pace != 1).squeeze(-1)
        # A quotient rounded to float32 before the exponential would cost digits.
        if logits.dtype == torch.float64 or bool(wide.all()):
            _wide(values, peak, pace, out, sums)
            continue
        _narrow(values, peak, out, sums)
        if bool(wide.any()):
            some_masses, some_sums = torch.empty_like(out[wide]), torch.empty_like(sums[wide])
            _wide(values[wide], peak[wide], pace[wide], some_masses, some_sums)
            out[wide], sums[wide] = some_masses, some_sums
    return top, masses, total


def _narrow(logits: Tensor, top: Tensor, masses: Tensor, total: Tensor) -> None:
    """Writes the softmax at T = 1 in float32, and the sums."""
    torch.sub(logits, top, out=masses)
    # What `exponential` does to deep ones is a pass of its own, and changes no other bit.
    if bool(masses.amin() <= LOWEST[torch.float32]):
        exponential_(masses)
    else:
        masses.exp_()
    total.copy_(pairwise_sum(block_sums(masses).double()))
    masses.div_(total.float())


def _wide(logits: Tensor, top: Tensor, temperature: Tensor, masses: Tensor, total: Tensor) -> None:
    """Writes the softmax at any T by way of float64, and the sums."""
    exponentials = exponential_(scaled(logits, top, temperature))
    total.copy_(row_sum(exponentials))
    masses.copy_(exponentials.div_(total))
