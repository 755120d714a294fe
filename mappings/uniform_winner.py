"""The chance of each class to win under uniform noise on [0, 1], piece by piece.

With v = 1 + max z − y and d_j = max z − z_j, class i wins with the density
P(v)/(1 − (v − d_i)) for v ≥ d_i, P(v) = Π_{d_j ≤ v} (1 − (v − d_j)): a polynomial between two
neighbouring d, which Gauss–Legendre integrates to rounding. Where thousands of
classes crowd within the winner's reach, pieces hold several d each; the error stays below 1e-10
since each is then far narrower than the noise.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from mappings.rows import row_sum
from mappings.winner import check_factor, legendre

POINTS = 12
"""Nodes a piece (a count)."""

PIECES = 2048
"""Pieces cut at classes (a count)."""

REACH = 40.0
"""−log of the probability that the winner stands lower than the pieces go."""

BLOCK = 16
"""Classes seen from all nodes at once (a count): memory stays bounded."""


def uniform_log_wins(scores: Tensor) -> Tensor:
    """The logarithms of P[class i wins], (rows, classes); −inf 1 or more below the maximum.

    Args:
        scores: (rows, classes) float64, the largest of each row 0, −inf where masked.
    """
    logs = torch.full_like(scores, -torch.inf)
    for row, out in zip(scores, logs, strict=True):
        sketch = _sketch(row)
        out[sketch.ids] = _wins(sketch.gaps, sketch.edges).log()
    return logs


def uniform_factor(scores: Tensor) -> tuple[Tensor, Tensor]:
    """B with −B Bᵀ the derivatives between different classes, of those that can win.

    Returns:
        B, (rows, nodes, kept), 0 where padded, and the class ids of its columns, (rows, kept),
        ascending, −1 where padded.

    Raises:
        DerivativesTooLarge: B would hold more than `FACTOR_NUMBERS`.
    """
    sketches = [_sketch(row) for row in scores]
    kept = max((sketch.ids.numel() for sketch in sketches), default=1)
    nodes = max(((sketch.edges.numel() - 1) * POINTS for sketch in sketches), default=1)
    check_factor(scores.shape[0] * nodes * kept)
    between = scores.new_zeros(scores.shape[0], nodes, kept)
    classes = torch.full(between[:, 0].shape, -1, dtype=torch.int64, device=scores.device)
    for sketch, out, ids in zip(sketches, between, classes, strict=True):
        points, weights = _nodes(sketch.edges)
        roots = (_log_product(sketch.gaps, points) / 2).exp() * weights.sqrt()
        away = points.unsqueeze(-1) - sketch.gaps
        seen = torch.where(away > 0, roots.unsqueeze(-1) / (1 - away), 0)
        placed, order = sketch.ids.sort()
        ids[: placed.numel()] = placed
        out[: points.numel(), : placed.numel()] = seen[:, order]
    return between, classes


@dataclass(frozen=True, slots=True)
class _Sketch:
    """The classes of one row that can win, nearest first.

    Attributes:
        ids: (reached,) class ids.
        gaps: (reached,) how far each is below the maximum, ascending.
        edges: (pieces + 1,) where the pieces meet.
    """

    ids: Tensor
    gaps: Tensor
    edges: Tensor


def _sketch(row: Tensor) -> _Sketch:
    near = (row > -1).nonzero().squeeze(-1)
    gaps, order = row[near].neg().sort(stable=True)
    edges = _edges(gaps)
    # Whoever stands below the lowest piece wins with less than e^−REACH: nothing.
    reached = int(torch.searchsorted(gaps, edges[-1]))
    return _Sketch(near[order[:reached]], gaps[:reached], edges)


def _nodes(edges: Tensor) -> tuple[Tensor, Tensor]:
    points, weights = (part.to(edges.device) for part in legendre(POINTS))
    lengths = edges.diff().unsqueeze(-1)
    return (edges[:-1].unsqueeze(-1) + lengths * points).flatten(), (lengths * weights).flatten()


def _wins(gaps: Tensor, edges: Tensor) -> Tensor:
    """P[class i wins] from the sorted gaps below the maximum, (classes,) each in [0, 1)."""
    nodes, node_weights = _nodes(edges)
    products = _log_product(gaps, nodes)
    masses = products.exp() * node_weights
    # A class wins from its own gap on: in the whole pieces above it ...
    first = torch.searchsorted(edges, gaps)
    piece = torch.arange(nodes.numel(), device=gaps.device) // POINTS
    wins = []
    for block, start in zip(gaps.split(BLOCK), first.split(BLOCK), strict=True):
        above = slice(int(start[0]) * POINTS, None)
        seen = torch.where(piece[above] >= start.unsqueeze(-1), masses[above], 0)
        wins.append(row_sum(seen / (1 + block.unsqueeze(-1) - nodes[above])).squeeze(-1))
    # ... and in what is left of a piece that began before it.
    points, weights = (part.to(gaps.device) for part in legendre(POINTS))
    lengths = (edges[first.clamp(max=edges.numel() - 1)] - gaps).clamp(min=0).unsqueeze(-1)
    away = lengths * points
    logs = _between(nodes, products, gaps.unsqueeze(-1) + away) - torch.log1p(-away)
    begun = row_sum(lengths * weights * logs.exp()).squeeze(-1)
    # Equal classes may stand in different blocks; each takes what its first found.
    return (torch.cat(wins) + begun)[torch.searchsorted(gaps, gaps)]


def _edges(gaps: Tensor) -> Tensor:
    """Where the pieces meet: at classes, at halvings towards 1, and at every half e-fold of P."""
    count = torch.arange(1, gaps.numel() + 1, dtype=torch.float64, device=gaps.device)
    # A(v) = Σ (v − d_j)₊ bounds −log P from below; at the classes themselves it is:
    depth = count * gaps - gaps.cumsum(0)
    levels = torch.linspace(0.5, REACH, 80, dtype=torch.float64, device=gaps.device)
    last = torch.searchsorted(depth, levels).clamp(min=1) - 1
    falls = gaps[last] + (levels - depth[last]) / count[last]
    halvings = 1 - 0.5 ** torch.arange(1, 20, dtype=torch.float64, device=gaps.device)
    end = falls[-1].clamp(max=1.0)
    kinks = gaps[gaps < end]
    kinks = kinks[:: max(1, kinks.numel() // PIECES)]
    edges = torch.cat([kinks, halvings, falls, gaps.new_zeros(1)])
    merged: Tensor = torch.cat([edges[edges < end], end.reshape(1)]).unique()
    return merged


def _log_product(gaps: Tensor, nodes: Tensor) -> Tensor:
    """The logarithm of P at the ascending nodes."""
    total = torch.zeros_like(nodes)
    for block in gaps.split(BLOCK):
        above = slice(int(torch.searchsorted(nodes, block[0])), None)
        factors = (1 + block.unsqueeze(-1) - nodes[above]).clamp_(max=1)
        total[above] += factors.prod(0).log_()
    return total


def _between(nodes: Tensor, values: Tensor, at: Tensor) -> Tensor:
    """Values at the nodes, interpolated linearly."""
    right = torch.searchsorted(nodes, at).clamp(1, nodes.numel() - 1)
    left = right - 1
    share = (at - nodes[left]) / (nodes[right] - nodes[left])
    return values[left] + share * (values[right] - values[left])
