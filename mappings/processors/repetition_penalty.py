"""Repetition penalty: moves the logits of classes already used towards less likely."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from mappings.class_ids import ClassIds, check_ids, member
from mappings.parameters import PerRow, Positive, Row
from mappings.processor import Processor


class RepetitionPenalty(Processor):
    """Repetition penalty: makes the named classes less likely (penalty > 1) or more (< 1).

    A positive logit is divided by the penalty, another multiplied by it. Keeps everything.
    penalty = 1 changes nothing; an id named twice counts once.

    Reference: Keskar, McCann, Varshney, Xiong, Socher 2019, "CTRL".
    """

    name: Literal["repetition_penalty"] = "repetition_penalty"
    penalty: PerRow[Positive]
    """The factor (dimensionless)."""
    ids: ClassIds
    """The class ids already used, for all rows or a list a row."""

    by_class = True

    def check_classes(self, classes: Sequence[int]) -> None:
        check_ids(self.ids, classes)

    def apply(self, logits: Tensor, row: Row) -> Tensor:
        values, penalty = logits.double(), row["penalty"]
        punished = torch.where(values > 0, values / penalty, values * penalty)
        return torch.where(member(row["ids"], logits.shape[-1]), punished, values)

    def slope(self, logits: Tensor, row: Row) -> Tensor:
        penalty = row["penalty"]
        punished = torch.where(logits > 0, 1 / penalty, penalty)
        return torch.where(member(row["ids"], logits.shape[-1]), punished, 1.0)
