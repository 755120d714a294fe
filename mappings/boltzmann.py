"""Softmax of logits at a temperature, for float32 logits in float32 wherever that is enough."""

from dataclasses import replace
from functools import cache

import torch
from torch import Tensor

from mappings.gibbs import Slope, gibbs, inverse
from mappings.rows import (
    LOWEST,
    block_sums,
    exponential,
    maximum,
    pairwise_sum,
    row_sum,
    scaled,
)
from mappings.solution import Solution

AT_ONCE = 1 << 18
"""Exponentials taken together (a count): they stay in the cache."""


def boltzmann(logits: Tensor, temperature: Tensor) -> Solution:
    """The distribution in proportion to e^{x/T}; its normalizer is log Σ e^{x/T}.

    Args:
        logits: (rows, kept) float32 or float64, −inf where masked.
        temperature: (rows, 1) float64; 0 shares the mass among the maxima.
    """
    top = maximum(logits)
    offset = top.double() / temperature

    @cache
    def exact() -> Solution:
        scores = scaled(logits, top, temperature)
        return gibbs(scores, Slope(inverse(temperature)), offset=offset)

    tempered = (temperature != 1).squeeze(-1)
    if logits.dtype == torch.float64:
        return exact()
    if bool(tempered.all()):
        return replace(exact(), probabilities=exact().probabilities.float())
    masses, total = _narrow(logits, top)
    if bool(tempered.any()):
        # A quotient rounded to float32 before the exponential would cost digits.
        scores = scaled(logits[tempered], top[tempered], temperature[tempered])
        exponentials = exponential(scores)
        total[tempered] = row_sum(exponentials)
        masses[tempered] = (exponentials / total[tempered]).float()

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


def _narrow(logits: Tensor, top: Tensor) -> tuple[Tensor, Tensor]:
    """The softmax at T = 1 in float32, and the float64 sum of its exponentials."""
    masses = torch.empty_like(logits)
    step = max(1, AT_ONCE // logits.shape[-1])
    totals = []
    for part, peak, out in zip(*(t.split(step) for t in (logits, top, masses)), strict=True):
        torch.sub(part, peak, out=out)
        # What `exponential` does to deep ones is a pass of its own, and changes no other bit.
        if bool(out.amin() <= LOWEST[torch.float32]):
            out.copy_(exponential(out))
        else:
            out.exp_()
        totals.append(pairwise_sum(block_sums(out).double()))
        out.div_(totals[-1].float())
    return masses, torch.cat(totals)
