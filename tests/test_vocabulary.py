"""What must hold of every registered mapping at the size of a vocabulary, 151,936 classes."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from answers import answer, bits, probabilities
from cases import CASES, DEFAULTS, Case, logits, spread, weights
from mappings.registry import MAPPINGS

CLASSES = 151_936
PADDED = 152_064
"""How wide a model stores the same vocabulary."""

# Quadrature takes seconds a row; the noise with a finite reach takes as long as the others.
QUICK = [case for case in DEFAULTS if case.name != "perturb_max"] + [
    case for case in CASES if case.parameters == {"noise": "uniform"}
]

BY_PLACE = {"weights", "target", "seed"}
"""Parameters that belong to a class's place."""

each_quick = pytest.mark.parametrize("case", QUICK, ids=str)
each_placeless = pytest.mark.parametrize(
    "case", [case for case in QUICK if not BY_PLACE & set(case.parameters)], ids=str
)
each_droppable = pytest.mark.parametrize(
    "case", [case for case in QUICK if not {"weights", "seed"} & set(case.parameters)], ids=str
)


def rows_of(case: Case, rows: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return spread(case, logits(rows, CLASSES)).to(dtype)


@each_droppable
def test_masks_are_exact_zeros_and_as_good_as_dropping(case: Case) -> None:
    values = rows_of(case, 1)
    if case.name == "margin_softmax":
        values[0, 0] = 0.5
    masked = [1, 2, CLASSES // 2, CLASSES - 1]
    mapping = case.mapping(CLASSES)
    cut = values.clone()
    cut[0, masked] = -math.inf
    found = probabilities(cut, mapping)[0]
    kept = torch.ones(CLASSES, dtype=torch.bool)
    kept[masked] = False
    assert not bool(found[~kept].any())
    dropped = probabilities(values[:, kept], case.mapping(CLASSES - len(masked)))[0]
    assert torch.allclose(found[kept], dropped, rtol=1e-6, atol=1e-9)


@each_placeless
def test_a_permutation_permutes_the_answer(case: Case) -> None:
    values, mapping = rows_of(case, 1), case.mapping(CLASSES)
    order = torch.from_numpy(np.random.default_rng(5).permutation(CLASSES))
    straight = probabilities(values, mapping)[:, order]
    assert torch.allclose(probabilities(values[:, order], mapping), straight, rtol=1e-6, atol=1e-9)


@each_quick
def test_what_is_claimed_holds(case: Case) -> None:
    kind, mapping = MAPPINGS[case.name], case.mapping(CLASSES)
    values = rows_of(case, 1, torch.float64)
    found = probabilities(values, mapping)[0]
    if kind.shift_invariant:
        moved = probabilities(values + 1024.0, mapping)[0]
        assert torch.allclose(moved, found, rtol=1e-9, atol=1e-12)
    if kind.monotone:
        ascending = found[values[0].argsort()]
        assert bool((ascending.diff() >= -1e-15).all())
    assert float(found.sum()) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("case", DEFAULTS, ids=str)
def test_a_row_has_the_same_bits_alone_and_in_a_batch(case: Case) -> None:
    values = rows_of(case, 3)
    values[1] *= 0.001
    if case.name == "perturb_max":
        values = values[:2]
    mapping = case.mapping(CLASSES)
    together = answer(values, mapping)
    for row in (0, len(values) - 1):
        assert bits(together, row) == bits(answer(values[row : row + 1], mapping), 0)


@each_quick
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_a_padded_vocabulary_is_read_in_place(case: Case, dtype: torch.dtype) -> None:
    wide = torch.full((2, PADDED), math.nan, dtype=dtype)
    wide[:, :CLASSES] = rows_of(case, 2, dtype)
    view, before = wide[:, :CLASSES], wide.clone()
    found = probabilities(view, case.mapping(CLASSES))
    assert torch.equal(found, probabilities(view.contiguous(), case.mapping(CLASSES)))
    assert torch.equal(wide[:, :CLASSES], before[:, :CLASSES])
    assert found.double().sum(-1).tolist() == pytest.approx([1, 1], abs=2e-6)


def test_all_weights_count() -> None:
    case = next(case for case in DEFAULTS if "weights" in case.parameters)
    values = rows_of(case, 1, torch.float64)
    found = probabilities(values, case.mapping(CLASSES))[0]
    scores = torch.tensor(weights(CLASSES), dtype=torch.float64) * values[0].exp()
    assert torch.allclose(found, scores / scores.sum(), rtol=1e-9, atol=1e-15)
