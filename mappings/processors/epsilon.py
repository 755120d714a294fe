"""Epsilon: keeps classes of at least a fixed probability."""

from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor

from mappings.compact import Kept, gather
from mappings.parameters import PerRow, Row
from mappings.processor import Processor, shares
from mappings.selection import or_argmax


class Epsilon(Processor):
    """Epsilon: keeps classes of at least a fixed probability, or the argmax alone.

    p_i ≥ cutoff. 0 keeps everything. Cost: O(n).

    Reference: Hewitt, Manning, Liang 2022, "Truncation Sampling as Language Model Desmoothing".
    """

    name: Literal["epsilon"] = "epsilon"
    cutoff: PerRow[Annotated[float, Field(ge=0, lt=1)]]
    """The smallest probability kept."""

    def kept(self, logits: Tensor, row: Row) -> Kept:
        given = shares(logits)
        keep = given.masses / given.total >= row["cutoff"]
        return gather(logits, or_argmax(keep, logits))
