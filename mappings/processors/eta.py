"""Eta: keeps classes of at least a probability that falls with the entropy."""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from mappings.compact import Kept, gather
from mappings.parameters import PerRow, Row
from mappings.processor import Processor, shares
from mappings.selection import or_argmax


class Eta(Processor):
    """Eta: keeps classes of at least a probability that falls with the entropy, or the argmax.

    p_i ≥ min(cutoff, √cutoff · e^{−H}). 0 keeps everything. Cost: O(n).

    Reference: Hewitt, Manning, Liang 2022, "Truncation Sampling as Language Model Desmoothing".
    """

    name: Literal["eta"] = "eta"
    cutoff: PerRow[Annotated[float, Field(ge=0, lt=1)]]
    """The smallest probability kept in a row of low entropy."""

    def kept(self, logits: Tensor, row: Row) -> Kept:
        given = shares(logits)
        bar = torch.minimum(row["cutoff"], row["cutoff"].sqrt() * (-given.entropy()).exp())
        return gather(logits, or_argmax(given.masses / given.total >= bar, logits))
