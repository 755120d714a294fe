"""The golden rows hold: in-process in float64 and float32, and through a running server."""

import math
from typing import Any

import torch
from torch import Tensor

import reference
from answers import answer
from cases import built
from golden_rows import PLAIN, each, printed
from mappings.evaluation import Evaluation
from server import map_logits

Golden = dict[str, Any]


def answered(row: Golden, logits: Tensor, dtype: torch.dtype = torch.float64) -> Evaluation:
    return answer(logits, built(row["mapping"]), dtype=dtype)


def double(row: Golden) -> Tensor:
    logits = [-math.inf if value is None else value for value in row["logits"]]
    return torch.tensor([logits], dtype=torch.float64)


def values(tensor: Tensor | None) -> list[float]:
    assert tensor is not None
    found: list[float] = tensor[0].tolist()
    return found


def assert_near(got: list[float], wanted: list[float], relative: float, absolute: float) -> None:
    assert len(got) == len(wanted)
    for index, (value, exact) in enumerate(zip(got, wanted, strict=True)):
        bound = relative * abs(exact) + absolute
        assert abs(value - exact) <= bound, f"class {index}: {value!r} is not {exact!r}"


@each(PLAIN)
def test_probabilities_agree_in_float64(row: Golden) -> None:
    got = values(answered(row, double(row)).probabilities)
    assert_near(got, row["probabilities"], 0, 1e-12 + printed(row))


@each(PLAIN, "log_probabilities")
def test_log_probabilities_agree_in_float64(row: Golden) -> None:
    got = values(answered(row, double(row)).log_probabilities)
    wanted = [-math.inf if value is None else value for value in row["log_probabilities"]]
    assert [value == -math.inf for value in got] == [value == -math.inf for value in wanted]
    finite = [index for index, value in enumerate(wanted) if value > -math.inf]
    assert_near([got[i] for i in finite], [wanted[i] for i in finite], 1e-10, printed(row))


@each(PLAIN, "entropy")
def test_entropy_agrees_in_float64(row: Golden) -> None:
    entropy = answered(row, double(row)).entropy
    assert entropy is not None
    # Each of at most 16 terms p log p carries an error of |log p| roundings.
    assert_near(entropy.tolist(), [row["entropy"]], 1e-12, 1e-13)


@each(PLAIN, "normalizer")
def test_the_normalizer_agrees_in_float64(row: Golden) -> None:
    normalizer = answered(row, double(row)).normalizer
    assert normalizer is not None
    assert_near(normalizer.tolist(), [row["normalizer"]], 1e-12, 1e-12)


@each([row for row in PLAIN if not printed(row)])
def test_the_support_is_what_is_above_zero(row: Golden) -> None:
    support = answered(row, double(row)).support
    assert support is not None
    wanted = row["probabilities"]
    order = sorted((i for i, p in enumerate(wanted) if p > 0), key=lambda i: (-wanted[i], i))
    assert support.indices.tolist() == order


@each(PLAIN)
def test_float64_logits_answered_in_float32_agree(row: Golden) -> None:
    evaluation = answered(row, double(row), torch.float32)
    assert evaluation.probabilities is not None
    assert evaluation.probabilities.dtype == torch.float32
    got = values(evaluation.probabilities)
    assert_near(got, row["probabilities"], 1e-6, 1e-9 + printed(row))


@each(PLAIN)
def test_float32_logits_agree_with_the_reference_at_their_values(row: Golden) -> None:
    logits = double(row).float()
    evaluation = answered(row, logits, torch.float32)
    exact = reference.distribution(row["mapping"], logits[0].tolist())
    assert_near(values(evaluation.probabilities), exact.doubles(), 1e-6, 1e-9)


@each(PLAIN)
def test_the_reference_agrees_with_the_golden_rows(row: Golden) -> None:
    exact = reference.distribution(row["mapping"], row["logits"])
    assert_near(exact.doubles(), row["probabilities"], 1e-15, 1e-15 + printed(row))
    if "entropy" in row:
        assert_near([float(exact.entropy())], [row["entropy"]], 1e-14, 1e-15)


@each(PLAIN)
def test_the_server_answers_the_golden_row(row: Golden) -> None:
    outputs = ["probabilities", "log_probabilities", "entropy"]
    response = map_logits(logits=row["logits"], mapping=row["mapping"], outputs=outputs)
    assert response.status_code == 200, response.text
    got = response.json()
    assert_near(got["probabilities"][0], row["probabilities"], 0, 1e-12 + printed(row))
    for value, wanted in zip(
        got["log_probabilities"][0], row.get("log_probabilities", []), strict=False
    ):
        if wanted is None:
            assert value is None
        else:
            assert abs(value - wanted) <= 1e-10 * abs(wanted) + printed(row)
    if "entropy" in row:
        assert_near(got["entropy"], [row["entropy"]], 1e-12, 1e-13)


@each(PLAIN)
def test_the_server_answers_the_golden_row_in_float32(row: Golden) -> None:
    response = map_logits(logits=row["logits"], mapping=row["mapping"], dtype="float32")
    assert response.status_code == 200, response.text
    got = response.json()["probabilities"][0]
    assert_near(got, row["probabilities"], 1e-6, 1e-9 + printed(row))
