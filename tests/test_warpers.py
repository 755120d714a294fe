"""The warpers of the transformers package keep the same classes, on rows without ties.

Its top-p compares an ascending cumulative sum with 1 − p without slack, so that exact
boundaries may fall elsewhere; random rows have none.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from processor_cases import step, survivors

warpers: Any = pytest.importorskip(
    "transformers.generation.logits_process", reason="transformers is not installed"
)

Pair = tuple[Callable[[], Any], dict[str, Any]]


def _pairs(warper: str, name: str, field: str, values: tuple[float, ...]) -> list[Pair]:
    """Their warper and our processor for each value of the one parameter."""
    made = getattr(warpers, f"{warper}LogitsWarper")
    return [(partial(made, value), {"name": name, field: value}) for value in values]


PAIRS: dict[str, list[Pair]] = {
    "TopK": _pairs("TopK", "top_k", "k", (1, 2, 7, 50, 10_000)),
    "TopP": _pairs("TopP", "top_p", "p", (1e-6, 0.1, 0.5, 0.8, 0.95, 0.9999)),
    "MinP": _pairs("MinP", "min_p", "ratio", (0.001, 0.05, 0.3, 1.0)),
    "Typical": _pairs("Typical", "typical", "mass", (0.05, 0.2, 0.5, 0.9, 0.99)),
    "Epsilon": _pairs("Epsilon", "epsilon", "cutoff", (1e-5, 3e-4, 0.02, 0.3, 0.9)),
    "Eta": _pairs("Eta", "eta", "cutoff", (1e-5, 3e-4, 0.02, 0.3, 0.9)),
    "Temperature": _pairs("Temperature", "temperature", "value", (0.2, 1.0, 3.0)),
}


def rows(classes: int, width: float) -> Tensor:
    generator = np.random.default_rng([classes, int(10 * width)])
    return torch.from_numpy(generator.normal(0, width, (6, classes)))


def theirs(values: Tensor, *made: Callable[[], Any]) -> list[list[int]]:
    no_tokens = torch.zeros(values.shape[0], 1, dtype=torch.int64)
    for make in made:
        values = make()(no_tokens, values)
    return [(row > -math.inf).nonzero().flatten().tolist() for row in values]


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("classes", [1, 2, 5, 100, 5000])
@pytest.mark.parametrize("width", [0.3, 2.0, 8.0])
def test_a_warper_keeps_the_same_classes(name: str, classes: int, width: float) -> None:
    values = rows(classes, width)
    for make, request in PAIRS[name]:
        assert survivors(values, request) == theirs(values, make), request


@pytest.mark.parametrize("seed", range(40))
def test_a_chain_of_warpers_keeps_the_same_classes(seed: int) -> None:
    generator = np.random.default_rng(seed)
    values = rows(300, 3.0)
    names = generator.permutation(list(PAIRS))[:4]
    pairs = [PAIRS[name][generator.integers(0, len(PAIRS[name]))] for name in names]
    requests = [request for _, request in pairs]
    assert survivors(values, *requests) == theirs(values, *(make for make, _ in pairs)), requests


def test_equal_logits_at_the_boundary_are_all_kept_with_ties_all() -> None:
    values = torch.tensor([[1.0, 2.0, 2.0, 2.0, 3.0]], dtype=torch.float64)
    kept = theirs(values, partial(warpers.TopKLogitsWarper, 3))
    assert survivors(values, {"name": "top_k", "k": 3, "ties": "all"}) == kept == [[1, 2, 3, 4]]


@pytest.mark.parametrize("penalty", [0.5, 1.0, 1.2, 2.0])
def test_a_repetition_penalty_changes_the_same_logits(penalty: float) -> None:
    values = rows(50, 3.0)
    ids = [[3, 1, 4, 1], [0, 49, 7, 7], [5, 5, 5, 5], [9, 8, 7, 6], [1, 2, 3, 4], [0, 0, 0, 1]]
    wanted = warpers.RepetitionPenaltyLogitsProcessor(penalty)(torch.tensor(ids), values.clone())
    processor = step({"name": "repetition_penalty", "penalty": penalty, "ids": ids})
    found = processor.apply(values, processor.bind(6, values.device))
    assert torch.equal(found, wanted)
