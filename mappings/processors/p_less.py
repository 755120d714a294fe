"""P-less: keeps classes more probable than a draw is likely to repeat."""

from typing import Literal

from torch import Tensor

from mappings.compact import Kept, gather
from mappings.parameters import Row
from mappings.processor import Processor, shares
from mappings.rows import row_sum


class PLess(Processor):
    """P-less: keeps classes at least as probable as two draws are to agree; no parameter.

    p_i ≥ Σ_j p_j² · (1 − 1e-6); the slack keeps every class of a uniform row. Cost: O(n).

    Reference: Tan, Xie, Wu, Li, Lim 2025, "p-less Sampling: A Robust Hyperparameter-Free Approach
    for LLM Decoding".
    """

    name: Literal["p_less"] = "p_less"

    def kept(self, logits: Tensor, row: Row) -> Kept:
        given = shares(logits)
        masses = given.masses / given.total
        return gather(logits, masses >= row_sum(masses.square()) * (1 - 1e-6))
