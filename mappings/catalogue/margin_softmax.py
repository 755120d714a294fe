"""Margin softmax: softmax of cosines with the target's made harder by a margin."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from mappings.base import Mapping
from mappings.errors import InvalidParameter
from mappings.gibbs import Slope, gibbs
from mappings.parameters import ClassId, NonNegative, PerRow, Positive, Row
from mappings.rows import maximum, scaled
from mappings.solution import Solution

ROUNDING = 1e-3
"""How far past ±1 a cosine of 16-bit embeddings can land; it is taken as ±1 (dimensionless)."""


class MarginSoftmax(Mapping):
    """Margin softmax: softmax of cosines with the target's made harder by a margin.

    The logits are cosines; the target's x_t becomes x_t − margin ("additive_cosine") or
    cos(arccos x_t + margin) ("additive_angle", margin in radians); then p = softmax(x/T).
    margin = 0 is softmax. A cosine of the target past ±1 has no angle and no answer. Cost: O(n).

    Reference: Wang, Cheng, Liu, Liu 2018, "Additive Margin Softmax for Face Verification";
    Deng, Guo, Xue, Zafeiriou 2019, "ArcFace".
    """

    name: Literal["margin_softmax"] = "margin_softmax"
    temperature: PerRow[Positive] = 1.0
    """Divides the cosines (dimensionless); 1/30 to 1/64 is usual."""
    target: PerRow[ClassId]
    """The class id of the target."""
    margin: PerRow[NonNegative] = 0.35
    """How much harder the target is made (a cosine, or radians)."""
    kind: Literal["additive_cosine", "additive_angle"] = "additive_cosine"
    """Whether the margin is subtracted from the cosine or added to the angle."""

    shift_invariant = False
    by_class = True
    monotone = False
    undefined = "the target's cosine is outside [−1, 1]; normalize the embeddings"

    def check_classes(self, classes: Sequence[int]) -> None:
        for index, width in enumerate(classes):
            target = self.target[index] if isinstance(self.target, list) else self.target
            if target >= width:
                message = f"row {index}: target {target} is not below the {width} classes"
                raise InvalidParameter.at(("target",), message)

    def undefined_rows(self, logits: Tensor, row: Row) -> Tensor | None:
        if self.kind == "additive_cosine":
            return None
        cosine = logits.gather(-1, row["target"])
        return ((cosine.abs() > 1 + ROUNDING) & (cosine > -torch.inf)).squeeze(-1)

    def solve(self, logits: Tensor, row: Row) -> Solution:
        values = logits.double()
        cosine = values.gather(-1, row["target"])
        if self.kind == "additive_cosine":
            moved, steepness = cosine - row["margin"], torch.ones_like(cosine)
        else:
            angle = cosine.clamp(-1, 1).acos()
            still = (cosine == -torch.inf) | (row["margin"] == 0)
            moved = torch.where(still, cosine, (angle + row["margin"]).cos())
            # No margin is no change, also at ±1, where the angle has no derivative.
            turned = (angle + row["margin"]).sin() / angle.sin()
            steepness = torch.where(still, 1.0, turned)
        values = values.scatter(-1, row["target"], moved)
        scores, pace = scaled(values, maximum(values), row["temperature"]), 1 / row["temperature"]
        slope = pace.expand_as(scores).scatter(-1, row["target"], steepness * pace)
        return gibbs(scores, Slope(slope), drift=-scores * pace)
