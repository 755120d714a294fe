"""What every logits processor is: a frozen model whose fields are its parameters, and an apply."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mappings.compact import Kept, spread
from mappings.parameters import Parameters, Row
from mappings.rows import exponential, maximum, row_sum, scaled

LIGHT = 1 << 22
"""Logits taken together on a CPU by a step that makes nothing of their size (a count)."""


class Processor(Parameters):
    """A step of the chain that logits take before the mapping.

    A subclass is one file in `mappings/processors`. It keeps some classes (`kept`), or changes
    the logits one by one (`apply`); each step sees what the last one left.
    """

    name: str
    """The processor's registered name."""

    by_class: ClassVar[bool] = False
    """Whether parameters name class ids, so that it must see every class in its place."""
    elements_at_once: ClassVar[int] = 1 << 19
    """Logits taken together on a CPU (a count): what comes between stays in the cache."""

    def check_classes(self, classes: Sequence[int]) -> None:
        """Raises InvalidParameter when a parameter does not fit rows of so many classes each."""

    def kept(self, logits: Tensor, row: Row) -> Kept | None:
        """The classes kept, with their logits as they were; None where `apply` changes them.

        Args:
            logits: (rows, classes), float32 or float64, contiguous, −inf where masked; every row
                has a finite maximum. Never written to.
            row: this processor's parameters, bound to the rows.
        """
        return None

    def apply(self, logits: Tensor, row: Row) -> Tensor:
        """The logits after this step, in their places; arguments as for `kept`."""
        kept = self.kept(logits, row)
        assert kept is not None
        return spread(kept.values, kept.classes, logits.shape[-1], -torch.inf)

    def slope(self, logits: Tensor, row: Row) -> Tensor | None:
        """How each logit moves with its own input, (rows, 1 or classes); None: by as much."""
        return None


@dataclass(frozen=True, slots=True)
class Shares:
    """The softmax of what a step is given.

    Attributes:
        scores: (rows, classes) x − max x in float64, −inf where masked.
        masses: (rows, classes) e^score, 1 at the maximum.
        total: (rows, 1) Σ e^score, at least 1.
    """

    scores: Tensor
    masses: Tensor
    total: Tensor

    def surprisals(self) -> Tensor:
        """Computes −log p, (rows, classes) in nats, +inf where masked."""
        return self.total.log() - self.scores

    def entropy(self) -> Tensor:
        """Computes the entropy, (rows, 1) in nats; a class of probability 0 adds nothing."""
        terms = torch.where(self.masses > 0, self.masses * self.surprisals(), 0)
        return row_sum(terms) / self.total


def shares(logits: Tensor) -> Shares:
    """Softmax of each row, in float64."""
    top = maximum(logits)
    scores = scaled(logits, top, torch.ones_like(top, dtype=torch.float64))
    masses = exponential(scores)
    return Shares(scores, masses, row_sum(masses))


def masked(logits: Tensor, keep: Tensor) -> Tensor:
    """The logits with every class outside `keep` masked."""
    return torch.where(keep, logits, -torch.inf)
