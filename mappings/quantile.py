"""Quantiles of the unmasked logits of each row, interpolated linearly."""

import torch
from torch import Tensor

SORTED_CLASSES = 1 << 12
"""Rows up to this long are sorted; longer ones are searched for two order statistics (a count)."""


def quantile(logits: Tensor, fraction: Tensor) -> Tensor:
    """The value below which `fraction` of the unmasked logits lie, (rows, 1) float64.

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
    low, high = below.double(), above.double()
    return low + (high - low) * (place - lower)
