"""Counter-based random numbers: Philox 4×32-10, the same on any device, in any batch.

A number is a pure function of (seed, stream, index): no state, no order of drawing. The words
are held in int64, whose products wrap to the right 64 bits.

Reference: Salmon, Moraes, Dror, Shaw 2011, "Parallel Random Numbers: As Easy as 1, 2, 3"; the
constants are the paper's.
"""

import torch
from torch import Tensor

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
WORD = 0xFFFFFFFF

NOISE_STREAM = 1
"""The counter's third word where numbers become Gumbel noise by class."""
DRAW_STREAM = 2
"""The counter's third word where numbers become uniforms by draw."""
ORDER_STREAM = 3
"""The counter's third word where numbers order the classes of a draw without replacement."""


def philox(
    counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, Tensor]
) -> tuple[Tensor, ...]:
    """Ten rounds of Philox 4×32 on broadcastable int64 tensors of 32-bit words."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        first, second = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            ((second >> 32) & WORD) ^ c1 ^ k0,
            second & WORD,
            ((first >> 32) & WORD) ^ c3 ^ k1,
            first & WORD,
        )
        k0, k1 = (k0 + WEYL[0]) & WORD, (k1 + WEYL[1]) & WORD
    return c0, c1, c2, c3


def uniforms(seed: Tensor, count: int, stream: int) -> Tensor:
    """Uniform numbers strictly between 0 and 1, (rows, count) float64, 52 bits each.

    Args:
        seed: (rows, 1) int64, the bits of an unsigned 64-bit seed.
        count: numbers a row; number i depends on the seed, the stream and i alone.
        stream: keeps numbers for different purposes apart.
    """
    pairs = torch.arange((count + 1) // 2, dtype=torch.int64, device=seed.device).unsqueeze(0)
    return torch.stack(_both(seed, pairs, stream), dim=-1).flatten(-2)[:, :count]


def uniforms_at(seed: Tensor, index: Tensor, stream: int) -> Tensor:
    """The numbers of `uniforms` at the places `index` (rows, any) alone."""
    even, odd = _both(seed, index >> 1, stream)
    return torch.where(index & 1 == 0, even, odd)


def _both(seed: Tensor, pairs: Tensor, stream: int) -> tuple[Tensor, Tensor]:
    """The even and the odd number of each pair."""
    nothing = torch.zeros_like(pairs)
    words = philox(
        (pairs & WORD, pairs >> 32, nothing + stream, nothing),
        (seed & WORD, (seed >> 32) & WORD),
    )
    return _unit(words[0], words[1]), _unit(words[2], words[3])


def _unit(high: Tensor, low: Tensor) -> Tensor:
    """52 of 64 bits as the middle of one of 2^52 equal parts of (0, 1), which is exact."""
    whole = (high << 20) | (low >> 12)
    return (whole.double() + 0.5) * 2.0**-52


def gumbel(seed: Tensor, classes: int) -> Tensor:
    """Standard Gumbel noise, (rows, classes) float64, a function of seed and class id."""
    return uniforms(seed, classes, NOISE_STREAM).log_().neg_().log_().neg_()
