"""Top-nσ: keeps logits within n standard deviations of the largest."""

from typing import Literal

import torch
from torch import Tensor

from mappings.compact import Kept, gather
from mappings.parameters import NonNegative, PerRow, Row
from mappings.processor import Processor
from mappings.rows import maximum, row_sum


class TopNSigma(Processor):
    """Top-nσ: keeps logits within n standard deviations of the largest.

    x_i ≥ max x − n·σ, σ the population standard deviation of the unmasked logits. 0 keeps the
    maxima. Independent of a temperature before it. Cost: O(n).

    Reference: Tang, Liu, Xu 2024, "Top-nσ: Not All Logits Are You Need".
    """

    name: Literal["top_n_sigma"] = "top_n_sigma"
    n: PerRow[NonNegative]
    """How many standard deviations below the maximum are kept (dimensionless)."""

    def kept(self, logits: Tensor, row: Row) -> Kept:
        present, top = logits > -torch.inf, maximum(logits).double()
        # Relative to the maximum, so that a large common shift costs no digits.
        below = torch.where(present, logits.double() - top, 0)
        count = present.sum(dim=-1, keepdim=True).double()
        spread = torch.where(present, below - row_sum(below) / count, 0)
        sigma = (row_sum(spread.square()) / count).sqrt()
        reach = torch.where(row["n"] == 0, 0, row["n"] * sigma)
        return gather(logits, present & (below >= -reach))
