"""Candidates and thresholds of the relu family."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

import reference
from answers import probabilities
from cases import built, logits
from mappings.compact import candidates
from mappings.entmax_roots import entmax_roots
from mappings.rows import maximum
from mappings.simplex import simplex_threshold

BETAS = [-0.9, -0.5, -1e-5, 1e-100, 1e-5, 0.25, 0.5, 0.75, 1.0, 1.5, 3.0, 8.0, 15.0]


def column(value: float, rows: int = 1) -> Tensor:
    return torch.full((rows, 1), value, dtype=torch.float64)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("reach", [0.5, 1.0, 3.0, 1e-30, math.inf])
def test_candidates_are_those_within_reach_of_the_maximum(dtype: torch.dtype, reach: float) -> None:
    values = (4 * logits(3, 500)).to(dtype)
    values[1, ::7] = -math.inf
    kept = candidates(values, column(reach, 3))
    for row in range(3):
        top = float(values[row].max())
        needed = [i for i in range(500) if top - reach < float(values[row, i]) > -math.inf]
        assert kept.classes is not None
        classes = [c for c in kept.classes[row].tolist() if c >= 0]
        assert classes == sorted(classes)
        assert set(needed) <= set(classes)
        # One more at most: the value right at the edge.
        assert len(classes) <= len(needed) + 1
        assert kept.values[row, : len(classes)].tolist() == values[row, classes].tolist()
        assert bool((kept.values[row, len(classes) :] == -math.inf).all())


@pytest.mark.parametrize("classes", [1, 2, 3, 30, 1000])
@pytest.mark.parametrize("width", [1e-9, 0.1, 1.0, 30.0])
def test_the_simplex_threshold_is_that_of_the_sorted_sums(classes: int, width: float) -> None:
    scores = width * logits(4, classes)
    scores = scores - maximum(scores)
    found = simplex_threshold(scores)
    for row in range(4):
        ranked = np.sort(scores[row].numpy().astype(np.longdouble))[::-1]
        sums = 1 + np.arange(1, classes + 1) * ranked - np.cumsum(ranked)
        count = int((sums > 0).sum())
        wanted = float(1 + (ranked[:count].sum() - 1) / count)
        assert float(found[row]) == pytest.approx(wanted, abs=2e-15)


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("row", [[0.0], [0.0, 0.0], [0.0, -0.1, -0.2, -0.3], [0.0, -1e-12, -40.0]])
def test_the_roots_of_entmax_agree_with_the_reference(beta: float, row: list[float]) -> None:
    exact = reference.distribution({"name": "entmax", "alpha": 1 + beta}, row)
    # 1 + β is rounded, so ask for the roots at the β that 1 + β stands for.
    taken = beta if beta == 1e-100 else (1 + beta) - 1
    found = entmax_roots(torch.tensor([row], dtype=torch.float64), column(taken))
    for got, wanted in zip(found.probabilities[0].tolist(), exact.doubles(), strict=True):
        assert got == pytest.approx(wanted, abs=1e-13)


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("classes", [1, 2, 17, 3000])
@pytest.mark.parametrize("width", [1e-6, 0.05, 1.0, 300.0])
def test_roots_sum_to_one_for_any_width(beta: float, classes: int, width: float) -> None:
    scores = width * logits(3, classes)
    scores = scores - maximum(scores)
    found = entmax_roots(scores, column(beta, 3))
    assert bool((found.probabilities >= 0).all())
    assert float((found.probabilities.sum(-1) - 1).abs().max()) <= 1e-12


def test_rows_of_every_beta_are_solved_together_as_alone() -> None:
    scores = logits(len(BETAS), 60)
    scores = scores - maximum(scores)
    betas = torch.tensor(BETAS, dtype=torch.float64).unsqueeze(-1)
    together = entmax_roots(scores, betas)
    for row in range(len(BETAS)):
        alone = entmax_roots(scores[row : row + 1], betas[row : row + 1])
        assert torch.equal(together.probabilities[row], alone.probabilities[0])
        assert torch.equal(together.log_probabilities[row], alone.log_probabilities[0])


def test_a_neighbour_of_another_alpha_changes_no_bit_of_what_underflows() -> None:
    row = torch.tensor([[0.0, -720.0, -1e4]], dtype=torch.float64)
    alphas = [1.0, 3.0, 0.9, 1.5]
    together = probabilities(row.expand(4, -1), built({"name": "entmax", "alpha": alphas}))
    for place, alpha in enumerate(alphas):
        alone = probabilities(row, built({"name": "entmax", "alpha": alpha}))
        assert torch.equal(alone[0], together[place])
