"""Epsilon: keeps classes of at least a fixed probability."""

from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor

from mappings.parameters import PerRow, Row
from mappings.processor import Processor, masked, shares
from mappings.selection import or_argmax


class Epsilon(Processor):
    """Epsilon: keeps classes of at least a fixed probability, or the argmax alone.

    p_i ≥ cutoff. 0 keeps everything. Cost: O(n).

    Reference: Hewitt, Manning, Liang 2022, "Truncation Sampling as Language Model Desmoothing".
    """

    name: Literal["epsilon"] = "epsilon"
    cutoff: PerRow[Annotated[float, Field(ge=0, lt=1)]]
    """The smallest probability kept."""

    def apply(self, logits: Tensor, row: Row) -> Tensor:
        given = shares(logits)
        keep = given.masses / given.total >= row["cutoff"]
        return masked(logits, or_argmax(keep, logits))
