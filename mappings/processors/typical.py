"""Typical: keeps classes whose surprisal is nearest to the entropy."""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from mappings.base import PerRow, Row
from mappings.processor import Processor, masked, shares
from mappings.selection import FIRST_GUESS, TAIL_SLACK


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

    def apply(self, logits: Tensor, row: Row) -> Tensor:
        given = shares(logits)
        present = logits > -torch.inf
        distance = torch.where(present, (given.surprisals - given.entropy).abs(), torch.inf)
        allowed = (1 - row["mass"]) * (1 + TAIL_SLACK)
        masses, classes = given.probabilities, logits.shape[-1]
        looked_at = min(FIRST_GUESS, classes)
        while True:
            order = _nearest(distance, looked_at)
            ranked = distance.gather(-1, order)
            held = masses.gather(-1, order).cumsum(dim=-1)
            enough = 1 - held <= allowed
            # Beyond the last distance looked at, equal ones may be missing from the prefix.
            certain = enough & ((ranked < ranked[:, -1:]) | (looked_at == classes))
            if looked_at == classes or bool(certain.any(dim=-1).all()):
                break
            looked_at = min(looked_at * 16, classes)
        last = torch.where(enough.any(-1), enough.to(torch.int8).argmax(-1), looked_at - 1)
        inside = torch.arange(looked_at, device=logits.device) <= last.unsqueeze(-1)
        keep = torch.zeros_like(present).scatter(-1, order, inside) & present
        return masked(logits, torch.where(row["mass"] >= 1, present, keep))


def _nearest(distance: Tensor, count: int) -> Tensor:
    """Places of the `count` smallest distances, equal ones in order of class id."""
    if count == distance.shape[-1]:
        return distance.argsort(dim=-1, stable=True)
    found = distance.topk(count, dim=-1, largest=False).indices.sort(dim=-1).values
    return found.gather(-1, distance.gather(-1, found).argsort(dim=-1, stable=True))
