"""Top-p: keeps the nucleus, the fewest most probable classes that hold the mass p."""

from typing import Literal

import torch
from torch import Tensor

from mappings.compact import Kept
from mappings.nucleus import nucleus
from mappings.parameters import Fraction, PerRow, Row
from mappings.processor import LIGHT, Processor
from mappings.selection import Ties


class TopP(Processor):
    """Top-p: keeps the nucleus, the fewest most probable classes that hold the mass p.

    The shortest prefix, by descending probability, then lower class id, whose discarded tail is
    at most (1 − p)(1 + 1e-6). Never empty; p = 0 keeps the argmax, p = 1 everything. Ties "first"
    keeps exactly the prefix, "all" also what equals its last. Cost: O(n); a whole row is sorted
    only when the nucleus is nearly the row.

    Reference: Holtzman, Buys, Du, Forbes, Choi 2020, "The Curious Case of Neural Text
    Degeneration".
    """

    name: Literal["top_p"] = "top_p"
    p: PerRow[Fraction]
    """Mass kept (a probability)."""
    ties: Ties = "first"
    """What happens to classes equal to the last one kept."""

    elements_at_once = LIGHT

    def kept(self, logits: Tensor, row: Row) -> Kept:
        return nucleus(logits, torch.ones_like(row["p"]), row["p"], self.ties)
