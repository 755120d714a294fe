"""What every logits processor is: a frozen model whose fields are its parameters, and an apply."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mappings.parameters import Parameters, Row
from mappings.rows import exponential, maximum, row_sum, scaled


class Processor(Parameters):
    """A step of the chain that logits take before the mapping.

    A subclass is one file in `mappings/processors`. It masks classes with −inf, or changes the
    logits one by one; each step sees what the last one left.
    """

    name: str
    """The processor's registered name."""

    def check_classes(self, classes: Sequence[int]) -> None:
        """Raises InvalidParameter when a parameter does not fit rows of so many classes each."""

    @abstractmethod
    def apply(self, logits: Tensor, row: Row) -> Tensor:
        """The logits after this step.

        Args:
            logits: (rows, classes), float32 or float64, −inf where masked; every row has a
                finite maximum. Never written to.
            row: this processor's parameters, bound to the rows.
        """

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
