"""Row arithmetic whose bits depend on the row alone, never on the batch around it.

torch splits long reductions over threads by the shape of the whole batch, so a row's plain
`sum` changes bits with its neighbours. Everything here keeps one order of operations: the same
row, padded with more zeros or masked classes, among other rows, gives the same bits.
"""

from math import exp

import torch
from torch import Tensor
from torch.nn.functional import pad, threshold

BLOCK = 128
"""Classes summed by one call of torch (a count); measured to be invariant on a CPU."""

LOWEST = {torch.float64: -700.0, torch.float32: -87.0}
"""Exponents below this count as e^−∞ = 0, so that nothing computed is a denormal number."""

HUGE = 1e291
"""Logits above this can overflow a difference in float64."""


def row_sum(values: Tensor) -> Tensor:
    """Sums the last dimension, (..., classes) to (..., 1), pairwise and batch-invariantly.

    Appended zeros change nothing, not even the last bit.
    """
    if values.shape[-1] == 0:
        return values.new_zeros(*values.shape[:-1], 1)
    if values.is_cuda:
        # Which order a GPU reduces in depends on the shape.
        return pairwise_sum(values)
    return pairwise_sum(block_sums(values))


def block_sums(values: Tensor) -> Tensor:
    """Sums every `BLOCK` classes, (..., classes) to (..., blocks), batch-invariantly."""
    values, classes = values.contiguous(), values.shape[-1]
    if values.is_cuda:
        padded = pad(values, (0, -classes % BLOCK)).unflatten(-1, (-1, BLOCK))
        return pairwise_sum(padded).squeeze(-1)
    blocks, rest = divmod(classes, BLOCK)
    parts = []
    if blocks:
        parts.append(values[..., : blocks * BLOCK].unflatten(-1, (blocks, BLOCK)).sum(-1))
    if rest:
        tail = pad(values[..., blocks * BLOCK :], (0, BLOCK - rest))
        parts.append(tail.sum(-1, keepdim=True))
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)


def pairwise_sum(values: Tensor) -> Tensor:
    """Sums the last dimension by halves, (..., classes) to (..., 1).

    As invariant as `row_sum`, of other bits, and faster for many rows of few classes.
    """
    classes = values.shape[-1]
    while classes > 1:
        half = 1 << ((classes - 1).bit_length() - 1)
        head = values[..., :half].clone()
        head[..., : classes - half] += values[..., half:classes]
        values, classes = head, half
    return values


def column_sum(values: Tensor) -> Tensor:
    """Sums the columns of each row's matrix, (rows, columns, classes) to (rows, classes)."""
    return pairwise_sum(values.transpose(1, 2)).squeeze(-1)


def exponential(values: Tensor) -> Tensor:
    """e^x, and exactly 0 below e^−700, in float32 below e^−87.

    A vectorized exponential takes fifty times as long where its result underflows, which in a
    masked or cold row is everywhere.
    """
    return _flushed(values.clamp(min=LOWEST[values.dtype]))


def exponential_(values: Tensor) -> Tensor:
    """As `exponential`, in the place of the values."""
    return _flushed(values.clamp_(min=LOWEST[values.dtype]))


def _flushed(values: Tensor) -> Tensor:
    least = exp(LOWEST[values.dtype]) * (1 + 1e-6)
    return threshold(values.exp_(), least, 0.0, inplace=True)


def logarithm(values: Tensor) -> Tensor:
    """Log x of x ≥ 0, −inf below e^−700; as fast where x = 0 as elsewhere."""
    least = exp(LOWEST[torch.float64])
    return values.clamp(min=least).log_().masked_fill_(values < least, -torch.inf)


def maximum(logits: Tensor) -> Tensor:
    """The largest logit of each row, (rows, 1); NaN when the row holds one."""
    return logits.amax(dim=-1, keepdim=True)


def scaled(logits: Tensor, top: Tensor, temperature: Tensor) -> Tensor:
    """(x − max x)/T in float64, at most 0 where `top` is the maximum; −inf where masked.

    T = 0 is the limit: 0 at the maxima and −inf elsewhere. The maximum is subtracted before the
    division, so that T = 1e-30 keeps every digit of the difference.
    """
    peak = top.double()
    # Of a float32 row and a float64 maximum torch takes the difference in float64.
    result = logits - peak
    if bool((temperature != 1).any()):
        result.div_(temperature)
    if bool((peak > HUGE).any()):
        halves = (logits.double() * 0.5 - peak * 0.5) / (temperature * 0.5)
        result = torch.where(peak > HUGE, halves, result)
    if bool((temperature == 0).any()):
        limit = torch.where(logits == top, 0.0, -torch.inf)
        result = torch.where(temperature == 0, limit, result)
    return result
