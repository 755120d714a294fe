"""The chance of each class to win when independent noise is added to every logit.

With S(y) = Σ_j log F(y − z_j), the density with which class i wins at the level y is
h(y − z_i) e^{S(y)}, h = f/F: one sum over the classes a node, not a product for each pair, so
the cost is O(n · nodes). Integrals of analytic noise (normal, logistic) use the trapezoid rule,
which converges exponentially; exponential noise is a polynomial in u = e^{m − y} and uses
Gauss–Legendre.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import log, pi

import torch
from torch import Tensor

from mappings.errors import DerivativesTooLarge
from mappings.jacobian import Jacobian
from mappings.rows import column_sum, exponential, logarithm, pairwise_sum, row_sum

NODES = 128
"""Nodes a row (a count): within 1e-12 of the limit for any spread of up to 10^6 classes."""

BLOCK = 2048
"""Classes looked at together (a count). Fixed, so that sums keep their order in any batch."""

DEEP = 37.0
"""Standard deviations beyond which Φ underflows; such a node carries nothing."""

FACTOR_NUMBERS = 1 << 26
"""The largest factor of a Jacobian that is made (numbers): a gigabyte with its copies."""

FLOOR = -36.0
"""S at the lowest node: what lies below it is e^−36 of the whole."""
DEEP_FLOOR = -360.0
"""The same where the noise's tails are so thin that it costs little: small p keep their digits."""
CEILING = -1e-15
"""S at the highest node: all the probability above it is 1e-15."""


def _normal_log_cdf(t: Tensor) -> Tensor:
    t = t.clamp(-DEEP, DEEP)
    tail = torch.special.erfc(t.abs() * 0.5**0.5).mul_(0.5)
    return torch.where(t > 0, torch.log1p(-tail), tail.log())


def _normal_log_hazard(t: Tensor) -> Tensor:
    return -0.5 * t * t - 0.5 * log(2 * pi) - _normal_log_cdf(t)


def _logistic_log_cdf(t: Tensor) -> Tensor:
    return t.clamp(max=0) - torch.log1p(exponential(-t.abs()))


def _logistic_log_hazard(t: Tensor) -> Tensor:
    return _logistic_log_cdf(-t)


@dataclass(frozen=True, slots=True)
class Noise:
    """A noise with an analytic density on the whole line.

    Attributes:
        log_cdf: log F(t).
        log_hazard: log f(t)/F(t).
        reach: beyond ± this F is 0 or 1 for the purpose of the floor and `CEILING`.
        floor: S at the lowest node.
    """

    log_cdf: Callable[[Tensor], Tensor]
    log_hazard: Callable[[Tensor], Tensor]
    reach: float
    floor: float


NOISES = {
    "normal": Noise(_normal_log_cdf, _normal_log_hazard, 27.0, DEEP_FLOOR),
    "logistic": Noise(_logistic_log_cdf, _logistic_log_hazard, 38.0, FLOOR),
}


@dataclass(frozen=True, slots=True)
class Levels:
    """Where a row's winner may stand, and how to see a class from there.

    Attributes:
        log_weights: (rows, nodes) log of the node's weight times e^{S}.
        log_hazards: of scores (rows, some) the (rows, some, nodes) log h at the nodes.
    """

    log_weights: Tensor
    log_hazards: Callable[[Tensor], Tensor]


def log_wins(scores: Tensor, levels: Levels) -> Tensor:
    """The logarithm of P[class i wins], (rows, classes)."""
    parts = []
    for block in scores.split(BLOCK, dim=-1):
        terms = levels.log_hazards(block) + levels.log_weights.unsqueeze(-2)
        top = terms.amax(dim=-1, keepdim=True).clamp(min=-1e300)
        parts.append((logarithm(row_sum(exponential(terms - top))) + top).squeeze(-1))
    return torch.cat(parts, dim=-1)


def check_factor(numbers: int) -> None:
    """Raises DerivativesTooLarge for a factor of more than `FACTOR_NUMBERS`."""
    if numbers > FACTOR_NUMBERS:
        raise DerivativesTooLarge(
            f"the derivatives of perturb_max take {numbers:,} numbers in between, above "
            f"{FACTOR_NUMBERS:,}; ask for fewer classes"
        )


def factor(scores: Tensor, levels: Levels) -> Tensor:
    """B with −B Bᵀ the derivatives between different classes, (rows, nodes, classes).

    Raises:
        DerivativesTooLarge: B would hold more than `FACTOR_NUMBERS`.
    """
    check_factor(scores.numel() * levels.log_weights.shape[-1])
    logs = levels.log_hazards(scores) + levels.log_weights.unsqueeze(-2) / 2
    return exponential(logs).transpose(1, 2).contiguous()


def win_jacobian(between: Tensor, pace: Tensor, classes: Tensor | None) -> Jacobian:
    """The Jacobian of the chances to win, from B, 1/T (rows, 1) and the class ids of B's columns.

    A class loses to each other what that one gains, and a shift of all changes nothing: every
    row of the Jacobian sums to 0, which gives the diagonal.
    """
    levels = row_sum(between)
    diagonal = column_sum(between * levels)
    return Jacobian(diagonal * pace, between, between * pace.unsqueeze(1), classes)


def log_pullback(scores: Tensor, logs: Tensor, levels: Levels, weights: Tensor) -> Tensor:
    """Σ_i v_i ∂log p_i/∂z of weights v, (rows, classes); finite also where p underflows.

    With r_iq the share of node q in p_i, a class gains Σ_q r_iq H_q by its own logit, H the sum
    of all h, and loses Σ_q r_iq h_jq by each class j.
    """
    blocks = list(
        zip(*(part.split(BLOCK, dim=-1) for part in (scores, logs, weights)), strict=True)
    )
    total = torch.zeros_like(levels.log_weights).unsqueeze(-2)
    pulled = torch.zeros_like(total)
    for block, known, weight in blocks:
        hazards, shares = _shares(block, known, weight, levels)
        total = total + column_sum(hazards).unsqueeze(-2)
        pulled = pulled + column_sum(shares).unsqueeze(-2)
    parts = []
    for block, known, weight in blocks:
        hazards, shares = _shares(block, known, weight, levels)
        parts.append((row_sum(shares * total) - row_sum(hazards * pulled)).squeeze(-1))
    return torch.cat(parts, dim=-1)


def _shares(scores: Tensor, logs: Tensor, weights: Tensor, levels: Levels) -> tuple[Tensor, Tensor]:
    """The hazards h at the nodes, and v times each node's share in p, (rows, some, nodes)."""
    hazards = levels.log_hazards(scores)
    shares = exponential(hazards + levels.log_weights.unsqueeze(-2) - logs.unsqueeze(-1))
    chosen = weights.unsqueeze(-1)
    return exponential(hazards), torch.where(chosen != 0, chosen * shares, 0)


def line_levels(scores: Tensor, noise: Noise) -> Levels:
    """Equidistant nodes where the winner's density lives, for noise on the whole line.

    Args:
        scores: (rows, classes) float64, the largest of each row 0, −inf where masked.
        noise: the noise added to every score.
    """
    low = _crossing(scores, noise, noise.floor)
    high = _crossing(scores, noise, CEILING)
    step = (high - low) / (NODES - 1)
    nodes = low + step * torch.arange(NODES, dtype=torch.float64, device=scores.device)
    weights = _log_product(scores, noise, nodes) + step.log()
    return Levels(
        weights, lambda block: noise.log_hazard(nodes.unsqueeze(-2) - block.unsqueeze(-1))
    )


def _crossing(scores: Tensor, noise: Noise, level: float) -> Tensor:
    """The y with S(y) = level, (rows, 1), to a thousandth of the noise's reach."""
    low = scores.new_full((scores.shape[0], 1), -noise.reach)
    high = low + 2 * noise.reach + row_sum((scores > -torch.inf).double()).log()
    for _ in range(16):
        middle = (low + high) / 2
        below = _log_product(scores, noise, middle) < level
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return low if level < CEILING else high


def _log_product(scores: Tensor, noise: Noise, nodes: Tensor) -> Tensor:
    """S at the nodes, (rows, nodes)."""
    total = torch.zeros_like(nodes)
    for block in scores.split(BLOCK, dim=-1):
        logs = noise.log_cdf(nodes.unsqueeze(-1) - block.unsqueeze(-2))
        total = total + pairwise_sum(logs).squeeze(-1)
    return total


def exponential_levels(scores: Tensor) -> Levels:
    """Gauss–Legendre nodes in u = e^{m − y}: p_i = w_i ∫ Π_{j≠i} (1 − w_j u) du, w = e^{z − m}."""
    shares = exponential(scores)
    width = (-FLOOR / row_sum(shares)).clamp(max=1.0)
    points, weights = legendre(NODES)
    nodes = width * points.to(scores.device)
    total = torch.zeros_like(nodes)
    for block in shares.split(BLOCK, dim=-1):
        logs = torch.log1p(-nodes.unsqueeze(-1) * block.unsqueeze(-2))
        total = total + pairwise_sum(logs).squeeze(-1)

    def log_hazards(block: Tensor) -> Tensor:
        near = torch.log1p(-block.exp().unsqueeze(-1) * nodes.unsqueeze(-2))
        return block.unsqueeze(-1) + nodes.log().unsqueeze(-2) - near

    # dy = du/u.
    return Levels(total + (width * weights.to(scores.device) / nodes).log(), log_hazards)


@lru_cache
def legendre(count: int) -> tuple[Tensor, Tensor]:
    """Gauss–Legendre points and weights on (0, 1), (count,) each, by Golub and Welsch 1969."""
    order = torch.arange(1, count, dtype=torch.float64)
    beside = order / (4 * order * order - 1).sqrt()
    points, vectors = torch.linalg.eigh(torch.diag(beside, 1) + torch.diag(beside, -1))
    return (points + 1) / 2, vectors[0].square()
