"""Keeping the largest: by count and by mass, ties by lower class id; quantiles."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from cases import logits
from mappings.compact import spread
from mappings.nucleus import nucleus
from mappings.quantile import quantile
from mappings.selection import Ties, largest

LENGTHS = [1, 2, 5, 300, 5000]


def ranked(row: Tensor) -> list[int]:
    """Unmasked classes by value, then by lower class id."""
    unmasked = [index for index, value in enumerate(row.tolist()) if value > -math.inf]
    return sorted(unmasked, key=lambda index: (-float(row[index]), index))


def with_ties(classes: int) -> Tensor:
    values = (3 * logits(4, classes)).round()
    values[1] = logits(1, classes)[0]
    values[2] = 0.0
    values[3, ::3] = -math.inf
    values[3, -1] = 1.0
    return values


@pytest.mark.parametrize("classes", LENGTHS)
@pytest.mark.parametrize("ties", ["first", "all"])
def test_the_largest_are_kept(classes: int, ties: Ties) -> None:
    values = with_ties(classes)
    for counts in ([1, 1, 1, 1], [1, 2, 3, 4], [classes, 1, classes + 1, 2], [1 << 53] * 4):
        kept = largest(values, torch.tensor(counts).unsqueeze(-1), ties)
        for row, count in enumerate(counts):
            wanted = ranked(values[row])[:count]
            if ties == "all":
                last = float(values[row, wanted[-1]])
                wanted = [
                    index for index in ranked(values[row]) if float(values[row, index]) >= last
                ]
            assert kept[row].nonzero().flatten().tolist() == sorted(wanted)


def inside(scores: Tensor, mass: Tensor, ties: Ties) -> Tensor:
    """Which classes are in the nucleus of a softmax of scores, (rows, classes)."""
    kept = nucleus(scores, torch.ones_like(mass), mass, ties)
    return spread(kept.values, kept.classes, scores.shape[-1], -math.inf) > -math.inf


@pytest.mark.parametrize("classes", LENGTHS)
@pytest.mark.parametrize("mass", [0.0, 1e-6, 0.1, 0.5, 0.8, 0.95, 0.999, 1 - 1e-9, 1.0])
@pytest.mark.parametrize("width", [0.01, 1.0, 8.0])
def test_a_nucleus_is_the_shortest_that_holds_the_mass(
    classes: int, mass: float, width: float
) -> None:
    scores = width * with_ties(classes)
    scores = scores - scores.amax(-1, keepdim=True)
    masses_asked = torch.full((4, 1), mass, dtype=torch.float64)
    kept = inside(scores, masses_asked, "first")
    tied = inside(scores, masses_asked, "all")
    for row in range(4):
        order = ranked(scores[row])
        masses = np.exp(scores[row, order].numpy().astype(np.longdouble))
        tails = masses.sum() - np.cumsum(masses)
        allowed = (1 - np.longdouble(mass)) * (1 + np.longdouble(1e-6)) * masses.sum()
        wanted = len(order) if mass == 1 else int((tails > allowed).sum()) + 1
        # A tail within rounding of what is allowed may fall either way.
        close = np.abs(tails - allowed) <= 1e-15 * masses.sum()
        found = int(kept[row].sum())
        assert found == wanted or (abs(found - wanted) == 1 and close.any())
        assert 1 <= found <= len(order)
        assert kept[row].nonzero().flatten().tolist() == sorted(order[:found])
        last = float(scores[row, order[found - 1]])
        equal_or_above = [index for index in order if float(scores[row, index]) >= last]
        assert tied[row].nonzero().flatten().tolist() == sorted(equal_or_above)


def test_a_nucleus_does_not_depend_on_the_batch() -> None:
    scores = torch.cat([40 * logits(3, 5000), 0.01 * logits(3, 5000)])
    scores = scores - scores.amax(-1, keepdim=True)
    mass = torch.full((6, 1), 0.9, dtype=torch.float64)
    together = inside(scores, mass, "first")
    alone = torch.cat([inside(scores[row : row + 1], mass[:1], "first") for row in range(6)])
    assert torch.equal(together, alone)


@pytest.mark.parametrize("classes", [1, 2, 3, 10, 4096, 4097, 9000])
@pytest.mark.parametrize("fraction", [0.0, 0.1, 1 / 3, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_a_quantile_interpolates_the_unmasked(
    classes: int, fraction: float, dtype: torch.dtype
) -> None:
    values = with_ties(classes).to(dtype)
    found = quantile(values, torch.full((4, 1), fraction, dtype=torch.float64)).value
    for row in range(4):
        unmasked = [value for value in values[row].tolist() if value > -math.inf]
        wanted = float(np.quantile(np.array(unmasked), fraction))
        assert float(found[row]) == pytest.approx(wanted, abs=1e-12)
