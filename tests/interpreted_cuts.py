"""Cuts without a sort and seeded draws on a GPU: the kernels in Triton's interpreter.

With PROBMAP_TEST_DEVICE=cuda the same tests run compiled, on a GPU.
"""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from cases import built
from interpreted_kernels import DEVICE, by_torch, column, taken, wild
from mappings import kernels
from mappings.evaluate import evaluate
from mappings.philox import DRAW_STREAM, uniforms
from mappings.processor import Processor
from mappings.sampling import Draws
from processor_cases import PROCESSOR_CASES, chain

__all__ = ["by_torch", "taken"]

SEEDS = [0, 1, 2**63 - 1, -(2**63), -7, 12345]
each_dtype = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)


def seeds() -> Tensor:
    return torch.tensor(SEEDS, device=DEVICE).unsqueeze(-1)


def distributions(classes: int, dtype: torch.dtype) -> Tensor:
    """Six rows of masses, with zeros among them, before them and behind them."""
    rows = wild(classes, torch.float64)
    rows[:, -1] = rows[:, -1].clamp(min=0)
    masses = rows.softmax(-1)
    masses[0, 1 + classes // 3 :] = 0
    masses[4, ::2] = 0
    masses[4, -1] = 0.5
    return masses.to(dtype)


@each_dtype
@pytest.mark.parametrize("classes", [1, 2, 1024, 2500])
@pytest.mark.parametrize("samples", [1, 12])
def test_a_draw_inverts_the_cumulative_sum(dtype: torch.dtype, classes: int, samples: int) -> None:
    masses = distributions(classes, dtype)
    found = kernels.drawn(masses, seeds(), samples, DRAW_STREAM).cpu()
    chances = uniforms(seeds().cpu(), samples, DRAW_STREAM).numpy()
    sums = masses.cpu().numpy().astype(np.longdouble).cumsum(axis=-1)
    for row in range(6):
        wanted = np.searchsorted(sums[row], chances[row] * sums[row, -1], side="right")
        assert found[row].tolist() == wanted.tolist()


@each_dtype
def test_draws_are_the_tokens_of_the_cpu(dtype: torch.dtype, by_torch: Any) -> None:
    masses = distributions(3000, dtype)
    draws = Draws(seed=[seed % 2**64 for seed in SEEDS], samples=20)

    def drawn(masses: Tensor) -> Tensor:
        row = draws.bind(6, masses.device)
        return draws.draw(masses, masses.log, None, row, 0)

    assert torch.equal(drawn(masses).cpu(), by_torch(drawn, masses))


def test_a_class_of_probability_0_is_never_drawn_and_a_row_of_zeros_draws_a_place() -> None:
    masses = torch.zeros(6, 3000, dtype=torch.float32, device=DEVICE)
    masses[:5, 1500] = 1e-30
    found = kernels.drawn(masses, seeds(), 9, DRAW_STREAM)
    assert found[:5].unique().tolist() == [1500]
    assert bool(((found[5] >= 0) & (found[5] < 3000)).all())


@each_dtype
def test_a_draw_depends_on_its_row_its_seed_and_its_index_alone(dtype: torch.dtype) -> None:
    masses = distributions(3000, dtype)
    together = kernels.drawn(masses, seeds(), 12, DRAW_STREAM)
    for row in (0, 4):
        padded = torch.nn.functional.pad(masses[row : row + 1], (0, 5000))
        alone = kernels.drawn(padded, seeds()[row : row + 1], 5, DRAW_STREAM)
        assert torch.equal(alone[0], together[row, :5])


@each_dtype
@pytest.mark.parametrize("classes", [1, 5, 3000])
def test_the_nth_largest_is_that_of_a_sorted_row(dtype: torch.dtype, classes: int) -> None:
    rows = wild(classes, dtype)
    rows[0] *= 1e-40
    rows[4, : classes // 2] = -0.0
    ordered = np.sort(rows.cpu().numpy(), axis=-1)[:, ::-1].copy()
    for ask in ([1, 1, 2, 2, 1, 2], [2, 1, 1, 3, classes, 1000], [classes // 2 or 1] * 6):
        counts = torch.tensor([ask], device=DEVICE).T.clamp(max=classes)
        found = kernels.nth_largest(rows, counts).cpu().numpy()
        assert found.tolist() == np.take_along_axis(ordered, counts.cpu().numpy() - 1, -1).tolist()


def test_more_than_there_are_unmasked_is_all_of_them() -> None:
    rows = torch.tensor([[1.0, -math.inf, 3.0], [-math.inf] * 3], device=DEVICE)
    found = kernels.nth_largest(rows, torch.full((2, 1), 3, device=DEVICE))
    assert found.tolist() == [[-math.inf], [-math.inf]]


def test_the_heaviest_count_equal_classes_one_by_one() -> None:
    values = torch.tensor([[1.0, 2.0, 2.0, 2.0, 2.0, 0.0]] * 5, device=DEVICE)
    masses = torch.tensor([[2.0, 4.0, 4.0, 4.0, 4.0, 1.0]] * 5, device=DEVICE).double()
    tails = column([15.5, 15.0, 11.0, 3.0, 0.0])
    last, counts = kernels.heaviest(values, masses, column([19.0] * 5), tails)
    assert last.flatten().tolist() == [2.0, 2.0, 2.0, 2.0, 0.0]
    assert counts.flatten().tolist() == [1, 1, 2, 4, 6]


KEEPING = [case for case in PROCESSOR_CASES if case.name in ("top_k", "top_p", "min_p")]


@pytest.mark.parametrize("case", KEEPING, ids=str)
def test_what_is_kept_is_what_was_computed_by_hand(case: Any) -> None:
    row = torch.tensor([case.row], dtype=torch.float64, device=DEVICE)
    processor = chain(case.request())[0]
    after = processor.apply(row, processor.bind(1, DEVICE))
    kept = (after[0] > -math.inf).nonzero().flatten().tolist()
    assert kept == case.kept


STEPS: list[tuple[dict[str, Any], str]] = [
    *(({"name": "top_k", "k": k}, "nth_largest") for k in (1, 50, 2000)),
    ({"name": "top_k", "k": 50, "ties": "all"}, "nth_largest"),
    *(({"name": "top_p", "p": p}, "heaviest") for p in (0.0, 0.5, 0.9, 0.999999, 1.0)),
    ({"name": "top_p", "p": 0.7, "ties": "all"}, "heaviest"),
    ({"name": "min_p", "ratio": 0.02}, "candidates"),
]


@pytest.mark.parametrize(("step", "used"), STEPS, ids=[str(step) for step, _ in STEPS])
@pytest.mark.parametrize(("classes", "dtype"), [(300, torch.float64), (4200, torch.bfloat16)])
def test_what_is_kept_is_what_torch_keeps(
    step: dict[str, Any],
    used: str,
    classes: int,
    dtype: torch.dtype,
    by_torch: Any,
    taken: set[str],
) -> None:
    steps: list[Processor] = chain(step)
    rows = wild(classes, dtype)

    def kept(given: Tensor) -> Tensor:
        found = evaluate(given, built("softmax"), processors=steps).probabilities
        assert found is not None
        return found

    found = kept(rows)
    assert used in taken or step.get("k", 0) >= classes
    wanted = by_torch(kept, rows)
    assert torch.equal(found.cpu() > 0, wanted > 0)
    alone = rows[3:4] if classes < 4000 else rows[2:3]
    assert torch.equal(kept(alone)[0], found[3 if classes < 4000 else 2])
