"""The golden rows hold through a running server."""

import math
from typing import Any

import pytest

from golden_rows import PLAIN, each, printed
from server import map_logits

OUTPUTS = ["probabilities", "log_probabilities", "support", "normalizer", "entropy"]


def answered(row: dict[str, Any], dtype: str) -> dict[str, Any]:
    response = map_logits(
        logits=[row["logits"]], mapping=row["mapping"], outputs=OUTPUTS, dtype=dtype
    )
    assert response.status_code == 200, response.text
    document: dict[str, Any] = response.json()
    return document


@each(PLAIN)
def test_a_golden_row_is_answered_in_float64(row: dict[str, Any]) -> None:
    got = answered(row, "float64")
    wanted = row["probabilities"]
    assert got["probabilities"][0] == pytest.approx(wanted, rel=0, abs=1e-12 + printed(row))
    if "log_probabilities" in row:
        for value, exact in zip(got["log_probabilities"][0], row["log_probabilities"], strict=True):
            assert (value is None) == (exact is None)
            assert value is None or math.isclose(value, exact, rel_tol=1e-10, abs_tol=printed(row))
    if "entropy" in row:
        assert got["entropy"][0] == pytest.approx(row["entropy"], rel=1e-12, abs=1e-13)
    if "normalizer" in row:
        assert got["normalizer"][0] == pytest.approx(row["normalizer"], rel=1e-12, abs=1e-12)
    if not printed(row):
        order = sorted((i for i, p in enumerate(wanted) if p > 0), key=lambda i: (-wanted[i], i))
        assert got["support"][0]["indices"] == order


@each(PLAIN)
def test_a_golden_row_is_answered_in_float32(row: dict[str, Any]) -> None:
    got = answered(row, "float32")["probabilities"][0]
    assert got == pytest.approx(row["probabilities"], rel=1e-6, abs=1e-9 + printed(row))
