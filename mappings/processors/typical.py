"""Typical: keeps classes whose surprisal is nearest to the entropy."""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from mappings.compact import Kept, along
from mappings.nucleus import shortest_prefix
from mappings.parameters import PerRow, Row
from mappings.processor import Processor, shares


class Typical(Processor):
    """Typical: keeps the classes whose surprisal is nearest to the entropy, up to a mass.

    The shortest prefix by |−log p_i − H| ascending, then lower class id, whose discarded tail is
    at most (1 − mass)(1 + 1e-6); at least one class. mass = 1 keeps everything. Cost: O(n); a
    whole row is sorted only when the prefix is nearly the row.

    Reference: Meister, Pimentel, Wiher, Cotterell 2023, "Locally Typical Sampling".
    """

    name: Literal["typical"] = "typical"
    mass: PerRow[Annotated[float, Field(gt=0, le=1)]]
    """Mass kept (a probability)."""

    def kept(self, logits: Tensor, row: Row) -> Kept:
        given = shares(logits)
        present = logits > -torch.inf
        distance = torch.where(present, (given.surprisals() - given.entropy()).abs(), torch.inf)
        kept = shortest_prefix(distance, given.masses / given.total, row["mass"])
        values = along(logits, kept.classes).masked_fill_(kept.values == -torch.inf, -torch.inf)
        return Kept(values, kept.classes)
