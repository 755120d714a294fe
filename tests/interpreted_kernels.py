"""The kernels for GPUs against torch's path and the golden rows, in Triton's interpreter.

`test_kernels.py` runs this file in a process of its own, as the interpreter is chosen when Triton
is first imported. With PROBMAP_TEST_DEVICE=cuda the same tests run compiled, on a GPU.
"""

import math
import os
from typing import Any

import pytest
import torch
from torch import Tensor

import reference
from answers import answer
from cases import built, logits
from golden_rows import PLAIN, each, printed
from mappings import kernels
from mappings.boltzmann import boltzmann
from mappings.compact import Kept, candidates, spread
from mappings.entmax_roots import entmax_roots
from mappings.evaluate import evaluate
from mappings.simplex import simplex_threshold
from processor_cases import chain

DEVICE = torch.device(os.environ.get("PROBMAP_TEST_DEVICE", "cpu"))
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
KERNELS = {"softmax", "sparsemax", "entmax", "sparsegen", "sparsehourglass", "sparse_softmax"}
GOLDEN = [row for row in PLAIN if row["mapping"]["name"] in KERNELS]
NAMES = (
    *("shares", "candidates", "simplex_threshold", "entmax_shift"),
    *("drawn", "heaviest", "nth_largest"),
)
BETAS = [-0.9, -0.5, -1e-5, 1e-100, 1e-5, 0.25, 0.5, 0.75, 1.0]


@pytest.fixture(autouse=True)
def taken(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The kernels are taken on the device of the tests; the names of those that were."""
    calls: set[str] = set()
    monkeypatch.setattr(kernels, "available", lambda device: device.type == DEVICE.type)
    for name in NAMES:
        monkeypatch.setattr(kernels, name, _recording(getattr(kernels, name), name, calls))
    return calls


def _recording(kernel: Any, name: str, calls: set[str]) -> Any:
    def recorded(*given: Any) -> Any:
        calls.add(name)
        return kernel(*given)

    return recorded


@pytest.fixture
def by_torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Calls a function on the CPU without any kernel."""

    def call(function: Any, *given: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(kernels, "available", lambda device: False)
            return function(*(g.cpu() if isinstance(g, Tensor) else g for g in given))

    return call


def column(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, device=DEVICE).unsqueeze(-1)


def wild(classes: int, dtype: torch.dtype) -> Tensor:
    """Rows that are usual, masked at places, masked for more than a chunk, tied, flat and steep."""
    rows = 3 * logits(6, classes)
    rows[1, ::3] = -math.inf
    rows[2, : classes // 2] = -math.inf
    rows[3] = rows[3].round()
    rows[4] *= 1e-3
    rows[5] *= 30
    return rows.to(dtype).to(DEVICE)


def assert_same(got: Kept, wanted: Kept, classes: int) -> None:
    assert torch.equal(
        spread(got.values, got.classes, classes, -math.inf).cpu(),
        spread(wanted.values, wanted.classes, classes, -math.inf),
    )
    if wanted.classes is None or got.classes is None:
        assert got.classes is wanted.classes
    else:
        assert torch.equal(got.classes.cpu(), wanted.classes)


@each_dtype
@pytest.mark.parametrize("classes", [1, 2, 1000, 4096, 9001])
def test_softmax_agrees_with_torch_in_float64(dtype: torch.dtype, classes: int) -> None:
    rows = wild(classes, dtype)[:, -classes:]
    rows[:, -1] = rows[:, -1].clamp(min=0)
    temperature = column([1.0, 1.0, 0.7, 1.0, 1.0, 30.0])
    top, masses, total = kernels.shares(rows, temperature)
    scores = rows.double() / temperature
    exact = scores.softmax(-1)
    bound = 1e-14 if dtype == torch.float64 else 1e-6 * exact + 1e-9
    assert bool(((masses.double() - exact).abs() <= bound).all())
    assert bool((masses[rows == -math.inf] == 0).all())
    assert torch.equal(top.double(), rows.double().amax(-1, keepdim=True))
    normalizer = top.double() / temperature + total.log()
    assert float((normalizer - scores.logsumexp(-1, keepdim=True)).abs().max()) <= 2e-7


def test_softmax_at_temperature_0_shares_the_mass_among_the_maxima() -> None:
    rows = torch.tensor([[1.0, 3.0, 3.0, -math.inf], [0.0, -1.0, -2.0, -3.0]], device=DEVICE)
    found = boltzmann(rows, column([0.0, 0.0])).probabilities
    assert found.tolist() == [[0.0, 0.5, 0.5, 0.0], [1.0, 0.0, 0.0, 0.0]]


def test_softmax_of_huge_logits_does_not_overflow() -> None:
    rows = torch.tensor([[1.7e308, -1.7e308, 1.7e308]], dtype=torch.float64, device=DEVICE)
    assert boltzmann(rows, column([1.0])).probabilities.tolist() == [[0.5, 0.0, 0.5]]


@each_dtype
@pytest.mark.parametrize("classes", [1, 2, 1000, 9001])
@pytest.mark.parametrize("reach", [0.0, 0.5, 2.0, 1e3, math.inf])
def test_the_candidates_are_the_ones_torch_finds(
    dtype: torch.dtype, classes: int, reach: float, by_torch: Any
) -> None:
    rows = wild(classes, dtype)
    rows[:, -1] = rows[:, -1].clamp(min=0)
    reaches = column([reach] * 6)
    reaches[0] = 1.0
    # Half-precision logits are exact in float32, where torch's path takes them.
    exact = rows.to(torch.promote_types(dtype, torch.float32))
    wanted = by_torch(candidates, exact, reaches)
    assert_same(candidates(rows, reaches), Kept(wanted.values.to(dtype), wanted.classes), classes)


@pytest.mark.parametrize("width", [1e-9, 0.1, 1.0, 30.0])
@pytest.mark.parametrize("kept", [1, 2, 300, 3000])
def test_the_simplex_threshold_agrees_with_torch(width: float, kept: int, by_torch: Any) -> None:
    scores = (width * logits(4, kept)).to(DEVICE)
    scores = scores - scores.amax(-1, keepdim=True)
    scores[1, 1::3] = -math.inf
    scores[1] -= scores[1].amax()
    found, wanted = simplex_threshold(scores).cpu(), by_torch(simplex_threshold, scores)
    assert float((found - wanted).abs().max()) <= 2e-15


@pytest.mark.parametrize("width", [1e-6, 0.05, 1.0, 300.0])
@pytest.mark.parametrize("kept", [1, 17, 3000])
def test_rows_of_many_alphas_agree_with_torch(width: float, kept: int, by_torch: Any) -> None:
    scores = (width * logits(len(BETAS), kept)).to(DEVICE)
    scores = scores - scores.amax(-1, keepdim=True)
    beta = column(BETAS)
    found, wanted = entmax_roots(scores, beta), by_torch(entmax_roots, scores, beta)
    error = (found.probabilities.cpu() - wanted.probabilities).abs()
    assert float(error.max()) <= 1e-13
    assert float((found.probabilities.sum(-1) - 1).abs().max()) <= 1e-12


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("row", [[0.0], [0.0, 0.0], [0.0, -0.1, -0.2, -0.3], [0.0, -1e-12, -40.0]])
def test_the_roots_of_entmax_agree_with_the_reference(beta: float, row: list[float]) -> None:
    exact = reference.distribution({"name": "entmax", "alpha": 1 + beta}, row)
    # 1 + β is rounded, so ask for the roots at the β that 1 + β stands for.
    found = entmax_roots(column(row).T, column([beta if beta == 1e-100 else (1 + beta) - 1]))
    for got, wanted in zip(found.probabilities[0].tolist(), exact.doubles(), strict=True):
        assert got == pytest.approx(wanted, abs=1e-13)


@each(GOLDEN)
def test_the_golden_rows_hold(row: dict[str, Any]) -> None:
    given = [-math.inf if value is None else value for value in row["logits"]]
    asked = torch.tensor([given], dtype=torch.float64, device=DEVICE)
    found = answer(asked, built(row["mapping"]), dtype=torch.float64).probabilities
    assert found is not None
    bound = 1e-12 + printed(row)
    for got, wanted in zip(found[0].tolist(), row["probabilities"], strict=True):
        assert got == pytest.approx(wanted, rel=0, abs=bound)


MAPPINGS: list[tuple[dict[str, Any], set[str]]] = [
    ({"name": "softmax"}, {"shares"}),
    ({"name": "softmax", "temperature": 0.7}, {"shares"}),
    ({"name": "sparsemax"}, {"candidates", "simplex_threshold"}),
    ({"name": "entmax"}, {"candidates", "entmax_shift"}),
    ({"name": "entmax", "alpha": 1.3}, {"candidates", "entmax_shift"}),
    ({"name": "sparsegen", "lam": 0.3}, {"candidates", "simplex_threshold"}),
    ({"name": "sparsehourglass", "q": 2.0}, {"candidates", "simplex_threshold"}),
]
each_mapping = pytest.mark.parametrize(
    ("mapping", "used"), MAPPINGS, ids=[str(given) for given, _ in MAPPINGS]
)


@each_mapping
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_row_has_the_same_bits_in_any_batch_and_padded(
    mapping: dict[str, Any], used: set[str], dtype: torch.dtype, taken: set[str]
) -> None:
    rows = wild(5000, dtype)
    together = evaluate(rows, built(mapping)).probabilities
    assert together is not None
    assert used <= taken
    for place in range(6):
        alone = evaluate(rows[place : place + 1], built(mapping)).probabilities
        assert alone is not None
        assert torch.equal(alone[0], together[place])
    longer = torch.full((6, 9000), -math.inf, dtype=dtype, device=DEVICE)
    longer[:, :5000] = rows
    padded = evaluate(longer, built(mapping)).probabilities
    assert padded is not None
    assert torch.equal(padded[:, :5000], together)
    assert not bool(padded[:, 5000:].any())


@each_mapping
def test_an_invalid_row_changes_no_bit_of_another(mapping: dict[str, Any], used: set[str]) -> None:
    rows = wild(5000, torch.float32)
    sound = evaluate(rows, built(mapping)).probabilities
    rows[0, 7], rows[3] = math.nan, -math.inf
    found = evaluate(rows, built(mapping), invalid_rows="report")
    assert found.probabilities is not None
    assert sound is not None
    assert found.status[0] == "nan at class 7"
    assert found.status[3] == "no unmasked class"
    for place in (0, 3):
        assert bool(found.probabilities[place].isnan().all())
    for place in (1, 2, 4, 5):
        assert torch.equal(found.probabilities[place], sound[place])


def test_min_p_keeps_what_torch_keeps(by_torch: Any, taken: set[str]) -> None:
    rows = wild(5000, torch.float32)
    steps = chain({"name": "min_p", "ratio": 0.05})

    def kept(given: Tensor) -> Tensor:
        found = evaluate(given, built({"name": "softmax"}), processors=steps).probabilities
        assert found is not None
        return found

    found, wanted = kept(rows).cpu(), by_torch(kept, rows)
    assert "candidates" in taken
    assert torch.equal(found > 0, wanted > 0)
    assert bool(((found - wanted).abs() <= 1e-6 * wanted + 1e-9).all())
