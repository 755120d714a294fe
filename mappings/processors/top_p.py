"""Top-p: keeps the nucleus, the fewest most probable classes that hold the mass p."""

from typing import Literal

from torch import Tensor

from mappings.compact import Kept, gather
from mappings.parameters import Fraction, PerRow, Row
from mappings.processor import Processor, shares
from mappings.selection import Ties, shortest_prefix


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

    def kept(self, logits: Tensor, row: Row) -> Kept:
        given = shares(logits)
        keep = shortest_prefix(-given.scores, given.masses, row["p"], self.ties)
        return gather(logits, keep)
