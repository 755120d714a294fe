"""Row arithmetic: right, and the same bits whatever the batch."""

import math

import numpy as np
import pytest
import torch

from cases import logits
from mappings.rows import maximum, row_sum, scaled

LENGTHS = [1, 2, 3, 127, 128, 129, 255, 256, 257, 1000, 4096, 4097, 40_000]


@pytest.mark.parametrize("classes", LENGTHS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_a_sum_is_the_exact_sum(classes: int, dtype: torch.dtype) -> None:
    values = logits(3, classes, dtype=dtype)
    found = row_sum(values)
    assert found.shape == (3, 1)
    for row in range(3):
        exact = math.fsum(values[row].tolist())
        size = math.fsum(abs(value) for value in values[row].tolist())
        # Pairwise: about log2(n) roundings, not n.
        assert abs(float(found[row]) - exact) <= 20 * torch.finfo(dtype).eps * size


@pytest.mark.parametrize("classes", LENGTHS)
def test_a_sum_has_the_same_bits_alone_in_a_batch_and_padded(classes: int) -> None:
    values = logits(33, classes)
    together = row_sum(values)
    padded = torch.cat([values, values.new_zeros(33, 901)], -1)
    assert torch.equal(row_sum(padded), together)
    for row in (0, 16, 32):
        assert torch.equal(row_sum(values[row : row + 1]), together[row : row + 1])
    assert torch.equal(row_sum(padded[:, :classes]), together)


def test_a_sum_of_many_small_batches_is_the_sum_of_each() -> None:
    values = logits(2, 700).reshape(2, 7, 100)
    assert torch.equal(row_sum(values), torch.stack([row_sum(part) for part in values]))


def test_a_sum_of_no_classes_is_zero() -> None:
    assert row_sum(torch.zeros(3, 0)).tolist() == [[0.0]] * 3


def test_a_sum_of_no_rows_has_no_rows() -> None:
    assert row_sum(torch.zeros(0, 5)).shape == (0, 1)


def test_the_summed_values_are_not_written_to() -> None:
    values = logits(3, 300)
    before = values.clone()
    row_sum(values)
    assert torch.equal(values, before)


def test_the_maximum_skips_masks_and_shows_nan() -> None:
    values = torch.tensor([[-math.inf, 2.0, 1.0], [-math.inf] * 3, [math.nan, 1.0, 2.0]])
    found = maximum(values).flatten().tolist()
    assert found[:2] == [2.0, -math.inf]
    assert math.isnan(found[2])


@pytest.mark.parametrize("temperature", [1e-320, 1e-30, 0.1, 1.0, 7.0, 1e300])
@pytest.mark.parametrize(
    "row",
    [
        [1.0, 5.0, 2.0, -math.inf],
        [1e30, 0.0, -1e30, 1e30],
        [1.7e308, -1.7e308, 0.0, 1.6e308],
        [-1.7e308, -1.6e308, -1e300, -1.7e308],
    ],
)
def test_scaled_differences_are_exact(row: list[float], temperature: float) -> None:
    values = torch.tensor([row], dtype=torch.float64)
    found = scaled(values, maximum(values), torch.tensor([[temperature]], dtype=torch.float64))
    wide = np.array(row, dtype=np.longdouble)
    with np.errstate(over="ignore"):
        wanted = ((wide - wide.max()) / np.longdouble(temperature)).astype(np.float64)
    for got, exact in zip(found[0].tolist(), wanted.tolist(), strict=True):
        assert got == pytest.approx(exact, rel=4e-16)


def test_at_zero_temperature_only_maxima_are_left() -> None:
    values = torch.tensor([[1.0, 3.0, 3.0, -math.inf], [0.0, -1.0, 0.0, 0.0]])
    found = scaled(values, maximum(values), torch.tensor([[0.0], [2.0]], dtype=torch.float64))
    assert found.tolist() == [[-math.inf, 0, 0, -math.inf], [0, -0.5, 0, 0]]
