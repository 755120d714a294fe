"""Temperature: divides the logits before the steps that follow."""

from typing import Literal

from torch import Tensor

from mappings.parameters import PerRow, Positive, Row
from mappings.processor import Processor


class Temperature(Processor):
    """Temperature: divides the logits, so that the steps that follow see a sharper or flatter row.

    z = x/value. Keeps everything. The mapping's own temperature comes on top of it, last.
    """

    name: Literal["temperature"] = "temperature"
    value: PerRow[Positive]
    """What the logits are divided by (dimensionless)."""

    def apply(self, logits: Tensor, row: Row) -> Tensor:
        return logits.double() / row["value"]

    def slope(self, logits: Tensor, row: Row) -> Tensor:
        return 1 / row["value"]
