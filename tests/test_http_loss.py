"""POST /v1/loss computes what the contract promises, over a real socket."""

import math
from typing import Any

import numpy as np
import pytest

from server import post

Loc = list[str | int]


def compute(**fields: Any) -> dict[str, Any]:
    response = post("/v1/loss", fields)
    assert response.status_code == 200, response.text
    document: dict[str, Any] = response.json()
    return document


def refused(**fields: Any) -> dict[str, Any]:
    response = post("/v1/loss", fields)
    assert response.status_code == 422, response.text
    problem: dict[str, Any] = response.json()
    return problem


def log_sum_exp(row: list[float]) -> float:
    return math.log(sum(map(math.exp, row)))


ROW = [0, 0.25, 0.5]
SPARSE = [1 / 12, 4 / 12, 7 / 12]
"""sparsemax(ROW): each less the threshold −1/12."""


def test_losses_and_gradients_are_the_default() -> None:
    got = compute(logits=[ROW, [1, None, 3]], mapping="sparsemax", targets=[2, 0])
    assert list(got) == ["mapping", "rows", "loss", "gradient"]
    # ½ Σ_support (z² − τ²) + ½ − z_t: with τ = −1/12, and with all on the largest.
    value = 0.5 * sum(z * z - 1 / 144 for z in ROW) + 0.5 - 0.5
    assert got["loss"] == [pytest.approx(value, abs=1e-15), pytest.approx(2, abs=1e-15)]
    assert got["gradient"][0] == pytest.approx([1 / 12, 4 / 12, 7 / 12 - 1], abs=1e-15)
    assert got["gradient"][1] == [-1, 0, 1]


@pytest.mark.parametrize("target", [0, 1, 2])
@pytest.mark.parametrize("temperature", [1, 0.5])
def test_the_loss_of_softmax_is_the_log_of_the_target_s_share(
    target: int, temperature: float
) -> None:
    mapping = {"name": "softmax", "temperature": temperature}
    got = compute(logits=ROW, mapping=mapping, targets=[target])
    scores = [value / temperature for value in ROW]
    assert got["loss"] == [pytest.approx(log_sum_exp(scores) - scores[target], abs=1e-14)]
    slopes = [math.exp(score - log_sum_exp(scores)) / temperature for score in scores]
    slopes[target] -= 1 / temperature
    assert got["gradient"][0] == pytest.approx(slopes, abs=1e-14)


@pytest.mark.parametrize(
    ("kind", "value", "gradient"),
    [
        ("accuracy", -4 / 12, [1 / 3, -2 / 3, 1 / 3]),
        ("stop_gradient", 4 / 12 * 0.25 + 7 / 12 * 0.5 - 0.25, [1 / 12, 4 / 12 - 1, 7 / 12]),
        ("natural", 0.5 * (0.0625 + 0.25 - 3 / 144) + 0.5 - 0.25, [1 / 12, 4 / 12 - 1, 7 / 12]),
    ],
)
def test_every_kind_of_loss_has_its_value_and_gradient(
    kind: str, value: float, gradient: list[float]
) -> None:
    got = compute(logits=ROW, mapping="sparsemax", targets=[1], kind=kind)
    assert got["loss"] == [pytest.approx(value, abs=1e-15)]
    assert got["gradient"][0] == pytest.approx(gradient, abs=1e-15)


@pytest.mark.parametrize("kind", ["natural", "accuracy", "stop_gradient"])
@pytest.mark.parametrize("mapping", ["softmax", "sparsemax", "entmax", "r_softmax"])
def test_a_class_id_is_its_one_hot_distribution(mapping: str, kind: str) -> None:
    asked = {"logits": [ROW, [2, 1, 2.5]], "mapping": mapping, "kind": kind}
    by_id = compute(**asked, targets=[2, 0])
    assert compute(**asked, targets=[[0, 0, 1], [1, 0, 0]]) == by_id
    assert compute(**asked, targets=[[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]) == by_id


@pytest.mark.parametrize(
    "targets",
    [1, [1], [0, 1, 0], [0.0, 1.0, 0.0], [[0, 1, 0]], [[0.0, 1, 0.0]]],
    ids=str,
)
def test_one_row_takes_its_target_in_every_form(targets: object) -> None:
    for logits in (ROW, [ROW]):
        got = compute(logits=logits, mapping="softmax", targets=targets, outputs=["loss"])
        assert got["loss"] == [pytest.approx(log_sum_exp(ROW) - 0.25, abs=1e-15)]


@pytest.mark.parametrize("targets", [0, [0], [[1]], [1.0], [[1.0]]], ids=str)
def test_one_class_loses_nothing(targets: object) -> None:
    got = compute(logits=[[7]], mapping="softmax", targets=targets)
    assert (got["loss"], got["gradient"]) == ([0], [[0]])


def test_a_distribution_is_met_on_average() -> None:
    got = compute(logits=ROW, mapping="softmax", targets=[0.5, 0.25, 0.25])
    assert got["loss"] == [pytest.approx(log_sum_exp(ROW) - 0.1875, abs=1e-15)]
    shares = [math.exp(value - log_sum_exp(ROW)) for value in ROW]
    wanted = np.array(shares) - [0.5, 0.25, 0.25]
    assert got["gradient"][0] == pytest.approx(wanted, abs=1e-15)


def test_rows_of_different_lengths_have_their_own_targets() -> None:
    rows = [ROW, [1, 2], [5], [0, None, 0, 0]]
    by_id = compute(logits=rows, mapping="softmax", targets=[2, 0, 0, 3])
    assert [len(row) for row in by_id["gradient"]] == [3, 2, 1, 4]
    assert by_id["loss"] == pytest.approx(
        [log_sum_exp(ROW) - 0.5, math.log(1 + math.e), 0, math.log(3)], abs=1e-15
    )
    one_hot = [[0, 0, 1], [1, 0], [1], [0, 0, 0, 1]]
    assert compute(logits=rows, mapping="softmax", targets=one_hot) == by_id
    for row, target, loss, gradient in zip(
        rows, [2, 0, 0, 3], by_id["loss"], by_id["gradient"], strict=True
    ):
        alone = compute(logits=row, mapping="softmax", targets=[target])
        assert (alone["loss"], alone["gradient"]) == ([loss], [gradient])


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"mapping": "r_softmax", "logits": [0, 5, 4], "targets": [0]}, "beyond the quantile"),
        ({"mapping": "softmax", "logits": [0, None, 4], "targets": [1]}, "masked"),
        ({"mapping": "softmax", "logits": [0, None, 4], "targets": [0.5, 0.5, 0]}, "partly masked"),
        (
            {
                "mapping": "softmax",
                "logits": [0, 1, 2],
                "targets": [0],
                "processors": [{"name": "top_k", "k": 1}],
            },
            "cut off",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_infinite_loss_is_null_with_its_gradient(fields: dict[str, Any], reason: str) -> None:
    got = compute(**fields)
    assert got["loss"] == [None]
    assert got["gradient"] == [[None] * 3]


def test_an_infinite_loss_leaves_other_rows_alone() -> None:
    got = compute(logits=[[0, None], [0, 0]], mapping="softmax", targets=[1, 1])
    assert got["loss"] == [None, pytest.approx(math.log(2), abs=1e-15)]
    assert got["gradient"] == [[None, None], [0.5, -0.5]]


def test_a_row_without_an_answer_has_no_loss() -> None:
    got = compute(
        logits=[[None], [1, 1], [None, None]],
        mapping="softmax",
        targets=[0, 1, 1],
        invalid_rows="report",
    )
    assert got["status"] == ["no unmasked class", "ok", "no unmasked class"]
    assert got["loss"] == [None, pytest.approx(math.log(2), abs=1e-15), None]
    assert got["gradient"] == [None, [0.5, -0.5], None]


def test_an_empty_batch_has_an_empty_answer() -> None:
    got = compute(logits=[], mapping="softmax", targets=[])
    assert (got["rows"], got["loss"], got["gradient"]) == (0, [], [])


def test_what_map_answers_is_answered_beside_the_loss() -> None:
    asked = {"logits": [ROW, [1, None]], "mapping": {"name": "entmax", "alpha": [1, 2]}}
    outputs = ["probabilities", "support", "normalizer", "entropy", "jacobian"]
    mapped = post("/v1/map", {**asked, "outputs": outputs}).json()
    got = compute(**asked, targets=[0, 0], outputs=["loss", "gradient", *outputs])
    assert {name: got[name] for name in mapped} == mapped
    only = compute(**asked, targets=[0, 0], outputs=["gradient"])
    assert set(only) == {"mapping", "rows", "gradient"}


def test_the_kind_beside_a_name_is_the_loss_s() -> None:
    margin = {"name": "margin_softmax", "target": 1, "margin": 0.25, "kind": "additive_angle"}
    asked = {"logits": [0.5, 0.25], "targets": [1]}
    whole = compute(mapping=margin, kind="accuracy", **asked)
    assert whole["mapping"]["kind"] == "additive_angle"
    moved = math.cos(math.acos(0.25) + 0.25)
    share = math.exp(moved) / (math.exp(0.5) + math.exp(moved))
    assert whole["loss"] == [pytest.approx(-share, abs=1e-15)]
    flat = compute(mapping="margin_softmax", target=1, margin=0.25, **asked)
    assert flat["mapping"]["kind"] == "additive_cosine"
    assert flat["loss"] == [pytest.approx(math.log(1 + math.exp(0.5)), abs=1e-15)]


@pytest.mark.parametrize("kind", ["natural", "accuracy"])
@pytest.mark.parametrize("mapping", ["softmax", "entmax", "sparsemax", "spherical_softmax"])
def test_the_gradient_is_the_difference_quotient_of_the_loss(mapping: str, kind: str) -> None:
    step = 1e-6
    rows = []
    for place in range(3):
        for sign in (1, -1):
            row = [0.25, 1.0, 0.5]
            row[place] += sign * step
            rows.append(row)
    asked = {
        "mapping": {"name": mapping, "temperature": 2},
        "kind": kind,
        "processors": [{"name": "repetition_penalty", "penalty": 1.25, "ids": [1]}],
    }
    losses = compute(logits=rows, targets=[1] * 6, **asked)["loss"]
    quotients = [(up - down) / (2 * step) for up, down in zip(*[iter(losses)] * 2, strict=True)]
    got = compute(logits=[0.25, 1.0, 0.5], targets=[1], **asked)
    assert got["gradient"][0] == pytest.approx(quotients, abs=1e-8)


def test_long_lists_of_targets_are_read_as_short_ones() -> None:
    rows = 20_000
    ids = [place % 3 for place in range(rows)]
    got = compute(logits=[ROW] * rows, mapping="sparsemax", targets=ids)
    short = compute(logits=[ROW] * 3, mapping="sparsemax", targets=[0, 1, 2])
    for place in (0, 1, 2, rows - 1):
        assert got["loss"][place] == short["loss"][ids[place]]
        assert got["gradient"][place] == short["gradient"][ids[place]]
    hot = [[float(target == place) for place in range(3)] for target in ids]
    assert compute(logits=[ROW] * rows, mapping="sparsemax", targets=hot)["loss"] == got["loss"]


@pytest.mark.parametrize("shape", ["flat", "rows"])
def test_a_distribution_over_a_vocabulary_is_read(shape: str) -> None:
    classes = 1 << 15
    target = [1 / classes] * classes
    got = compute(
        logits=[0.5] * classes,
        mapping="softmax",
        targets=target if shape == "flat" else [target],
        outputs=["loss"],
    )
    assert got["loss"] == [pytest.approx(math.log(classes), abs=1e-9)]


MANY = [[0, 1]] * 30_000

WRONG: dict[str, tuple[dict[str, Any], Loc, str]] = {
    "none": ({"targets": None}, ["targets"], "array"),
    "a string": ({"targets": "1"}, ["targets"], "array"),
    "true": ({"targets": True}, ["targets"], "array"),
    "an object": ({"targets": {}}, ["targets"], "array"),
    "a fraction": ({"targets": 0.5}, ["targets"], "array"),
    "an id past the classes": ({"targets": [2, 3]}, ["targets", 1], "target 3"),
    "a negative id": ({"targets": [-1, 0]}, ["targets", 0], "target -1"),
    "an id of 64 bits": ({"targets": [0, 2**64 - 1]}, ["targets", 1], "classes"),
    "an id of 70 bits": ({"targets": [0, 2**70]}, ["targets"], "integers"),
    "an id past its own short row": (
        {"logits": [[0, 1, 2], [0, 1]], "targets": [2, 2]},
        ["targets", 1],
        "2 classes",
    ),
    "floats as ids": ({"targets": [1.0, 0.0]}, ["targets"], "integers"),
    "a float among ids": ({"targets": [1, 0.5]}, ["targets"], "integers"),
    "one id for two rows": ({"targets": [1]}, ["targets"], "1 targets for 2 rows"),
    "a bare id for two rows": ({"targets": 1}, ["targets"], "1 targets for 2 rows"),
    "three ids for two rows": ({"targets": [0, 1, 2]}, ["targets"], "3 targets for 2 rows"),
    "no ids": ({"targets": []}, ["targets"], "0 targets for 2 rows"),
    "null for an id": ({"targets": [0, None]}, ["targets", 1], "null"),
    "true for an id": ({"targets": [0, True]}, ["targets", 1], "true or false"),
    "a string for an id": ({"targets": [0, "1"]}, ["targets", 1], "a string"),
    "one distribution for two rows": ({"targets": [[0, 0, 1]]}, ["targets"], "1 rows for 2 rows"),
    "a short distribution": (
        {"targets": [[0, 0, 1], [0, 1]]},
        ["targets", 1],
        "2 numbers for 3 classes",
    ),
    "a long distribution": (
        {"targets": [[0, 0, 1, 0], [0, 1, 0]]},
        ["targets", 0],
        "4 numbers for 3 classes",
    ),
    "an empty distribution": ({"targets": [[], []]}, ["targets", 0], "0 numbers"),
    "a sum of 0.9": ({"targets": [[0, 0, 1], [0.5, 0.2, 0.2]]}, ["targets", 1], "sum to 1"),
    "a negative probability": (
        {"targets": [[0, 0, 1], [-0.5, 0.5, 1]]},
        ["targets", 1],
        "at least 0",
    ),
    "null for a probability": (
        {"targets": [[0, 0, 1], [0, None, 1]]},
        ["targets", 1, 1],
        "null",
    ),
    "true for a probability": (
        {"targets": [[0, 0, 1], [0, True, 0]]},
        ["targets", 1, 1],
        "true or false",
    ),
    "rows of rows": ({"targets": [[[1]]]}, ["targets", 0, 0], "an array"),
    "an id among distributions": ({"targets": [[0, 0, 1], 2]}, ["targets", 1], "no array"),
    "an unknown kind": ({"kind": "hinge"}, ["kind"], "'natural', 'accuracy' or 'stop_gradient'"),
    "a kind that is null": ({"kind": None}, ["kind"], "natural"),
    "tokens": ({"outputs": ["tokens"]}, ["outputs", 0], "loss"),
    "an unknown field": ({"target": [0, 1]}, ["target"], "did you mean targets?"),
    "a long list, one id past the classes": (
        {"logits": MANY, "targets": [0] * 29_999 + [2]},
        ["targets", 29_999],
        "target 2",
    ),
    "a long list, one true": (
        {"logits": MANY, "targets": [0] * 29_999 + [True]},
        ["targets", 29_999],
        "true or false",
    ),
    "a long list, one null": (
        {"logits": MANY, "targets": [0] * 29_999 + [None]},
        ["targets", 29_999],
        "null",
    ),
    "long rows, one null": (
        {"logits": MANY, "targets": [[0, 1]] * 29_999 + [[1, None]]},
        ["targets", 29_999, 1],
        "null",
    ),
    "long rows, one short": (
        {"logits": MANY, "targets": [[0, 1]] * 29_999 + [[1]]},
        ["targets", 29_999],
        "1 numbers for 2 classes",
    ),
    "long rows, one of another sum": (
        {"logits": MANY, "targets": [[0, 1]] * 29_999 + [[1, 1]]},
        ["targets", 29_999],
        "sum to 1",
    ),
}


@pytest.mark.parametrize(("fields", "loc", "words"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_located(fields: dict[str, Any], loc: Loc, words: str) -> None:
    asked = {"logits": [ROW, ROW], "mapping": "softmax", "targets": [0, 1]}
    problem = refused(**{**asked, **fields})
    assert problem["errors"][0]["loc"] == loc
    assert words in problem["detail"]
    assert "mask" not in problem["detail"]


def test_targets_that_are_missing_are_asked_for() -> None:
    problem = refused(logits=ROW, mapping="softmax")
    assert problem["errors"][0]["loc"] == ["targets"]
    assert "missing" in problem["detail"]
