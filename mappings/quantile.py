"""Quantiles of the unmasked logits of each row, interpolated linearly."""

from dataclasses import dataclass

import torch
from torch import Tensor

from mappings.rows import row_sum

SORTED_CLASSES = 1 << 12
"""Rows up to this long are sorted; longer ones are searched for two order statistics (a count)."""


@dataclass(frozen=True, slots=True)
class Quantile:
    """A quantile of each row and the two logits it lies between.

    Attributes:
        below: (rows, 1) the order statistic at or below it.
        above: (rows, 1) the next one.
        share: (rows, 1) how far towards `above` it lies, in [0, 1).
    """

    below: Tensor
    above: Tensor
    share: Tensor

    @property
    def value(self) -> Tensor:
        """The quantile, (rows, 1) float64."""
        low, high = self.below.double(), self.above.double()
        return low + (high - low) * self.share

    def above_it(self, logits: Tensor) -> Tensor:
        """How far each logit lies above it, (rows, classes) float64; 0 below.

        Differences are taken before the interpolation, so that a common shift costs no digits.
        """
        low, high = self.below.double(), self.above.double()
        return (logits.double() - low - (high - low) * self.share).clamp_(min=0)

    def gradient(self, logits: Tensor) -> Tensor:
        """How it moves with each logit, (rows, classes); equal logits share."""
        low, high = ((logits == edge).double() for edge in (self.below, self.above))
        return (1 - self.share) * low / row_sum(low) + self.share * high / row_sum(high)


def quantile(logits: Tensor, fraction: Tensor) -> Quantile:
    """The value below which `fraction` of the unmasked logits lie.

    It stands at place fraction · (n − 1) of the n sorted unmasked logits, between its
    neighbours' values in proportion.

    Args:
        logits: (rows, classes), −inf where masked; at least one unmasked a row.
        fraction: (rows, 1) in [0, 1].
    """
    classes = logits.shape[-1]
    unmasked = (logits > -torch.inf).sum(dim=-1, keepdim=True)
    place = fraction * (unmasked - 1)
    lower = place.floor().clamp(max=unmasked - 1)
    # Masked classes sort below all others.
    first = (lower.long() + classes - unmasked).clamp(max=classes - 1)
    if classes <= SORTED_CLASSES or logits.is_cuda:
        ranked = logits.sort(dim=-1).values
        below = ranked.gather(-1, first)
        above = ranked.gather(-1, (first + 1).clamp(max=classes - 1))
    else:
        pairs = zip(logits.unbind(), first.flatten().tolist(), strict=True)
        found = [values.kthvalue(rank + 1).values for values, rank in pairs]
        below = torch.stack(found).unsqueeze(-1)
        reached = (logits <= below).sum(dim=-1, keepdim=True) > first + 1
        larger = torch.where(logits > below, logits, torch.inf).amin(dim=-1, keepdim=True)
        above = torch.where(reached | (larger == torch.inf), below, larger)
    return Quantile(below, above, place - lower)
