"""Losses of a row against its target, with the gradient by the logits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mappings.compact import along, spread
from mappings.errors import InvalidParameter
from mappings.gibbs import inverse
from mappings.rows import maximum, row_sum, scaled
from mappings.solution import Solution

Kind = Literal["natural", "accuracy", "stop_gradient"]

MASS_TOLERANCE = 1e-4
"""How far from 1 a target distribution may sum (a probability): what float16 leaves."""


@dataclass(frozen=True, slots=True)
class Targets:
    """What each row should have said.

    Attributes:
        values: (rows,) int64 class ids, or (rows, classes) distributions.
        kind: "natural" is the mapping's own loss: the Fenchel–Young loss Ω*(z) − ⟨z, target⟩ of
            softmax, sparse_softmax, sparsemax and entmax, −⟨target, log p⟩ of all others, +inf
            where a target class has p = 0. "accuracy" is −⟨target, p⟩. "stop_gradient" is
            ⟨p − target, x⟩ with p held constant, so that its gradient is p − target.
    """

    values: Tensor
    kind: Kind = "natural"

    def check(self, lengths: Sequence[int], classes: int) -> None:
        """Raises InvalidParameter for a target that does not fit its row.

        Args:
            lengths: the classes of each row.
            classes: those of the longest, as wide as distributions must be.
        """
        if self.values.shape[0] != len(lengths):
            message = f"there are {self.values.shape[0]} targets for {len(lengths)} rows"
            raise InvalidParameter.at(("targets",), message)
        if self.values.ndim == 1:
            for row, (target, width) in enumerate(zip(self.values.tolist(), lengths, strict=True)):
                if not 0 <= target < width:
                    message = f"row {row}: target {target} is not one of the {width} classes"
                    raise InvalidParameter.at(("targets", row), message)
            return
        if self.values.shape[1] != classes:
            message = f"target distributions have {self.values.shape[1]} of {classes} classes"
            raise InvalidParameter.at(("targets",), f"{message}; give every class its share")
        off = ~((self.values.double().sum(-1) - 1).abs() <= MASS_TOLERANCE)
        for row in (off | (self.values < 0).any(-1)).nonzero().flatten().tolist()[:1]:
            message = f"the target distribution of row {row} must be at least 0 and sum to 1"
            raise InvalidParameter.at(("targets", row), message)

    def rows(self, start: int, stop: int, classes: int) -> Tensor:
        """The targets of some rows as distributions, (rows, classes) float64."""
        values = self.values[start:stop]
        if values.ndim == 2:
            return values.double()
        dense = torch.zeros(values.shape[0], classes, dtype=torch.float64, device=values.device)
        return dense.scatter_(-1, values.unsqueeze(-1), 1.0)


@dataclass(frozen=True, slots=True)
class Loss:
    """The loss of each row.

    Attributes:
        value: (rows, 1) in nats; +inf where the target has no probability.
        gradient: computes (rows, classes) by the logits the mapping was given; 0 where masked,
            NaN in rows whose loss is infinite for want of a probability.
    """

    value: Tensor
    gradient: Callable[[], Tensor]


def loss(
    solution: Solution, logits: Tensor, temperature: Tensor, target: Tensor, kind: Kind
) -> Loss:
    """The loss of a solution.

    Args:
        solution: what the mapping said of the logits.
        logits: (rows, classes) what it was given.
        temperature: (rows, 1) of the mapping.
        target: (rows, classes) distributions.
        kind: which loss.
    """
    if kind == "accuracy":
        return _accuracy(solution, target)
    if kind == "stop_gradient":
        return _stop_gradient(solution, logits, target)
    if solution.potential is not None:
        return _fenchel_young(solution, logits, temperature, target)
    return _negative_log(solution, target)


def _accuracy(solution: Solution, target: Tensor) -> Loss:
    masses = spread(solution.probabilities, solution.classes, target.shape[-1], 0.0)
    return Loss(0 - row_sum(masses * target), lambda: _pulled(solution, -target))


def _stop_gradient(solution: Solution, logits: Tensor, target: Tensor) -> Loss:
    masses = spread(solution.probabilities, solution.classes, target.shape[-1], 0.0)
    excess = masses - target
    terms = torch.where(excess != 0, excess * logits, 0)
    masked = logits == -torch.inf
    return Loss(row_sum(terms), lambda: torch.where(masked, 0, excess))


def _fenchel_young(solution: Solution, logits: Tensor, temperature: Tensor, target: Tensor) -> Loss:
    assert solution.potential is not None
    scores = scaled(logits, maximum(logits), temperature)
    met = row_sum(torch.where(target > 0, target * scores, 0))

    def gradient() -> Tensor:
        masses = spread(solution.probabilities, solution.classes, target.shape[-1], 0.0)
        slopes = (masses - target) * inverse(temperature)
        return torch.where(logits == -torch.inf, 0, slopes)

    return Loss(solution.potential() - met, gradient)


def _negative_log(solution: Solution, target: Tensor) -> Loss:
    logs = spread(solution.log_probabilities(), solution.classes, target.shape[-1], -torch.inf)
    value = 0 - row_sum(torch.where(target > 0, target * logs, 0))

    def gradient() -> Tensor:
        kept = along(target, solution.classes)
        if solution.log_pullback is not None:
            pulled = -solution.log_pullback(kept)
            slopes = spread(pulled, solution.classes, target.shape[-1], 0.0)
        else:
            masses = spread(solution.probabilities, solution.classes, target.shape[-1], 0.0)
            slopes = _pulled(solution, torch.where(target > 0, -target / masses, 0))
        return torch.where(value == torch.inf, torch.nan, slopes)

    return Loss(value, gradient)


def _pulled(solution: Solution, vector: Tensor) -> Tensor:
    jacobian = solution.jacobian()
    return spread(jacobian.vjp(vector), jacobian.classes, vector.shape[-1], 0.0)
