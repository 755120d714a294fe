"""POST /v1/map answers what the contract promises, over a real socket."""

import math
from typing import Any

import numpy as np
import pytest

from server import map_logits, shared_client

SOFTMAX_123 = [0.09003057317038046, 0.24472847105479764, 0.6652409557748219]
"""softmax([1, 2, 3]): e^−2, e^−1 and 1 over their sum."""


def answer(**fields: Any) -> dict[str, Any]:
    response = map_logits(**fields)
    assert response.status_code == 200, response.text
    document: dict[str, Any] = response.json()
    return document


def test_the_example_of_the_contract_is_answered() -> None:
    got = answer(
        logits=[[0, 0.25, 0.5], [1, None, 3]],
        mapping={"name": "entmax", "alpha": [1.5, 2], "temperature": 0.7},
        outputs=["probabilities", "support", "normalizer"],
    )
    assert got["mapping"] == {"name": "entmax", "alpha": [1.5, 2.0], "temperature": 0.7}
    assert got["rows"] == 2
    assert set(got) == {"mapping", "rows", "probabilities", "support", "normalizer"}
    # Two logits further apart than T under alpha = 2 (sparsemax): all on the largest.
    assert got["probabilities"][1] == [0, 0, 1]
    assert got["support"][1] == {
        "indices": [2],
        "probabilities": [1],
        "log_probabilities": [0],
    }
    assert got["support"][0]["indices"] == [2, 1, 0]
    assert sum(got["probabilities"][0]) == pytest.approx(1, abs=1e-15)


@pytest.mark.parametrize(
    ("mapping", "wanted"),
    [
        ("softmax", SOFTMAX_123),
        ({"name": "softmax"}, SOFTMAX_123),
        ({"name": "entmax", "alpha": 1}, SOFTMAX_123),
        ({"name": "entmax", "α": 2}, [0, 0, 1]),
        ("sparsemax", [0, 0, 1]),
        ({"name": "softmax", "τ": 0}, [0, 0, 1]),
        ({"name": "sparsegen", "λ": -1}, [0, 0.25, 0.75]),
        ({"name": "spherical_softmax"}, [1 / 14, 4 / 14, 9 / 14]),
        ({"name": "spherical_softmax", "ε": 2}, [3 / 20, 6 / 20, 11 / 20]),
        ({"name": "normalized", "function": "square"}, [1 / 14, 4 / 14, 9 / 14]),
        ({"name": "weighted_softmax", "weights": [1, 0, 0]}, [1, 0, 0]),
    ],
    ids=str,
)
def test_a_mapping_is_a_name_or_an_object(mapping: object, wanted: list[float]) -> None:
    got = answer(logits=[1, 2, 3], mapping=mapping)
    assert got["probabilities"][0] == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize(
    "beside", [{"alpha": 2}, {"α": 2}, {"alpha": [2]}, {"alpha": 2.0, "temperature": 1}], ids=str
)
def test_the_fields_of_a_mapping_may_stand_beside_its_name(beside: dict[str, Any]) -> None:
    assert answer(logits=[0, 0.5, 1], mapping="entmax", **beside)["probabilities"] == [
        [0, pytest.approx(0.25, abs=1e-15), pytest.approx(0.75, abs=1e-15)]
    ]


def test_every_row_has_its_own_alpha() -> None:
    row = [0, 0.25, 0.5]
    got = answer(logits=[row] * 4, mapping={"name": "entmax", "alpha": [1, 1.5, 2, 0.5]})
    exponentials = [math.exp(value) for value in row]
    assert got["probabilities"][0] == pytest.approx(
        [value / sum(exponentials) for value in exponentials], abs=1e-12
    )
    for alpha, probabilities in zip([1.5, 0.5], [*got["probabilities"][1::2]], strict=True):
        # p^(α − 1) is linear in the logits, with slope α − 1.
        powers = [p ** (alpha - 1) for p in probabilities]
        assert powers[1] - powers[0] == pytest.approx((alpha - 1) * 0.25, abs=1e-12)
        assert powers[2] - powers[1] == pytest.approx((alpha - 1) * 0.25, abs=1e-12)
        assert sum(probabilities) == pytest.approx(1, abs=1e-12)
    assert got["probabilities"][2] == pytest.approx([1 / 12, 4 / 12, 7 / 12], abs=1e-12)


def test_every_row_has_its_own_k() -> None:
    got = answer(logits=[[3, 2, 1]] * 3, mapping={"name": "sparse_softmax", "k": [1, 2, 50]})
    assert [[p > 0 for p in row] for row in got["probabilities"]] == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]


def test_null_masks_a_class_wherever_it_stands() -> None:
    for place in range(3):
        row: list[float | None] = [1, 1, 1]
        row[place] = None
        got = answer(logits=row, mapping="softmax", outputs=["probabilities", "log_probabilities"])
        wanted = [0.5, 0.5, 0.5]
        wanted[place] = 0
        assert got["probabilities"] == [wanted]
        assert [value is None for value in got["log_probabilities"][0]] == [
            index == place for index in range(3)
        ]


def test_the_logarithm_of_a_zero_is_null() -> None:
    got = answer(
        logits=[5, 1, 1],
        mapping={"name": "sparse_softmax", "k": 1},
        outputs=["log_probabilities"],
    )
    assert got["log_probabilities"] == [[0, None, None]]


def test_log_probabilities_stay_finite_where_probabilities_underflow() -> None:
    got = answer(
        logits=[0, -1000], mapping="softmax", outputs=["probabilities", "log_probabilities"]
    )
    assert got["probabilities"] == [[1, 0]]
    assert got["log_probabilities"] == [[0, -1000]]


def test_rows_may_differ_in_length() -> None:
    got = answer(
        logits=[[1, 2, 3], [7], [1, 2]],
        mapping="softmax",
        outputs=["probabilities", "log_probabilities", "support"],
    )
    assert [len(row) for row in got["probabilities"]] == [3, 1, 2]
    assert [len(row) for row in got["log_probabilities"]] == [3, 1, 2]
    assert got["probabilities"][0] == pytest.approx(SOFTMAX_123, abs=1e-15)
    assert got["probabilities"][1] == [1]
    assert [row["indices"] for row in got["support"]] == [[2, 1, 0], [0], [1, 0]]


def test_an_empty_batch_has_an_empty_answer() -> None:
    outputs = ["probabilities", "support", "normalizer", "entropy", "support_size"]
    got = answer(logits=[], mapping="entmax", outputs=outputs)
    assert got["rows"] == 0
    assert [got[name] for name in outputs] == [[]] * 5


def test_every_output_is_answered_and_no_other() -> None:
    outputs = [
        "probabilities",
        "log_probabilities",
        "support",
        "normalizer",
        "entropy",
        "support_size",
    ]
    got = answer(logits=[[0, 0], [1, 1]], mapping="softmax", outputs=outputs)
    half = math.log(2)
    assert got["entropy"] == pytest.approx([half, half], abs=1e-15)
    assert got["normalizer"] == pytest.approx([half, 1 + half], abs=1e-15)
    assert got["support_size"] == [2, 2]
    for output in outputs:
        assert set(answer(logits=[1], mapping="softmax", outputs=[output])) == {
            "mapping",
            "rows",
            output,
        }


def test_a_mapping_without_normalizer_answers_null() -> None:
    got = answer(logits=[1, 2], mapping="spherical_softmax", outputs=["normalizer"])
    assert got["normalizer"] == [None]


def test_a_support_is_in_order_of_probability_then_of_class() -> None:
    got = answer(logits=[1, 3, 2, 3], mapping="softmax", outputs=["support"])
    assert got["support"][0]["indices"] == [1, 3, 2, 0]
    assert "truncated" not in got["support"][0]


def test_support_limit_keeps_the_most_probable_and_says_so() -> None:
    got = answer(
        logits=[[1, 2, 3], [9, None, None]],
        mapping="softmax",
        outputs=["support", "support_size"],
        support_limit=2,
    )
    assert got["support"][0]["indices"] == [2, 1]
    assert got["support"][0]["truncated"] is True
    assert got["support"][0]["mass"] == pytest.approx(sum(SOFTMAX_123[1:]), abs=1e-15)
    assert got["support"][1] == {"indices": [0], "probabilities": [1], "log_probabilities": [0]}
    assert got["support_size"] == [3, 1]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ([None, None], "no unmasked class"),
        ([None], "no unmasked class"),
    ],
    ids=str,
)
def test_a_bad_row_is_null_and_the_others_are_answered(bad: list[None], reason: str) -> None:
    outputs = [
        "probabilities",
        "log_probabilities",
        "support",
        "normalizer",
        "entropy",
        "support_size",
    ]
    got = answer(
        logits=[[1, 2, 3], bad, [5]], mapping="softmax", invalid_rows="report", outputs=outputs
    )
    assert got["status"] == ["ok", reason, "ok"]
    for output in outputs:
        assert got[output][1] is None, output
        assert got[output][0] is not None, output
    assert got["probabilities"][0] == pytest.approx(SOFTMAX_123, abs=1e-15)
    assert got["probabilities"][2] == [1]


def test_a_batch_of_bad_rows_alone_is_reported() -> None:
    got = answer(
        logits=[[None], [None]],
        mapping="sparsemax",
        invalid_rows="report",
        outputs=["probabilities", "support"],
    )
    assert got["probabilities"] == [None, None]
    assert got["support"] == [None, None]
    assert got["status"] == ["no unmasked class"] * 2


def test_an_all_zero_row_has_no_spherical_softmax() -> None:
    got = answer(logits=[[0, 0], [3, 4]], mapping="spherical_softmax", invalid_rows="report")
    assert got["status"][0] != "ok"
    assert got["probabilities"] == [None, [9 / 25, 16 / 25]]


def test_numbers_are_the_shortest_decimals_of_their_precision() -> None:
    body = {"logits": [0, 0, 0], "mapping": "softmax", "dtype": "float32"}
    assert '"probabilities":[[0.33333334,0.33333334,0.33333334]]' in map_logits(body).text
    body["dtype"] = "float64"
    assert "0.3333333333333333," in map_logits(body).text


def test_answers_round_trip_to_the_bit() -> None:
    logits = np.random.default_rng(7).standard_normal((3, 1000)).tolist()
    first = answer(logits=logits, mapping="softmax")
    alone = [answer(logits=row, mapping="softmax")["probabilities"][0] for row in logits]
    assert first["probabilities"] == alone


def test_large_and_small_bodies_are_answered_alike() -> None:
    rows = np.random.default_rng(3).standard_normal((40, 500)).tolist()
    rows[7] = rows[7][:3]
    rows[9][4] = None
    mapping = {"name": "entmax", "alpha": [1 + index / 40 for index in range(40)]}
    large = answer(logits=rows, mapping=mapping, outputs=["probabilities", "support"])
    for index in (0, 7, 9, 39):
        one = {"name": "entmax", "alpha": mapping["alpha"][index]}
        small = answer(logits=rows[index], mapping=one, outputs=["probabilities", "support"])
        assert large["probabilities"][index] == small["probabilities"][0]
        assert large["support"][index] == small["support"][0]


def test_a_vocabulary_of_integers_is_mapped_as_numbers() -> None:
    row = [0] * 50_000
    row[123] = 30
    got = answer(logits=row, mapping="sparsemax", outputs=["support"])
    assert got["support"] == [{"indices": [123], "probabilities": [1], "log_probabilities": [0]}]


def test_weights_of_a_large_body_are_taken() -> None:
    classes = 20_000
    weights = [0.0] * classes
    weights[5] = weights[17] = 0.125
    got = answer(
        logits=[0.5] * classes,
        mapping={"name": "weighted_softmax", "weights": weights},
        outputs=["support"],
    )
    assert got["support"][0]["indices"] == [5, 17]
    assert got["support"][0]["probabilities"] == [0.5, 0.5]
    assert "weights" not in got["mapping"]


@pytest.mark.parametrize("classes", [3, 9000])
def test_every_row_may_have_its_own_weights(classes: int) -> None:
    weights = [[1.0] + [0.0] * (classes - 1), [0.0, 3.0]]
    got = answer(
        logits=[[0.5] * classes, [0.5, 0.5]],
        mapping={"name": "weighted_softmax", "weights": weights},
        outputs=["support"],
    )
    assert [row["indices"] for row in got["support"]] == [[0], [1]]


def test_seeds_keep_all_their_bits() -> None:
    seeds = [2**64 - 1, 2**64 - 2, 2**53 + 1]
    mapping = {"name": "gumbel_softmax", "seed": seeds}
    got = answer(logits=[[0, 0, 0]] * 3, mapping=mapping)
    assert got["mapping"]["seed"] == seeds
    assert len({tuple(row) for row in got["probabilities"]}) == 3


def test_the_times_of_an_evaluation_are_told() -> None:
    timing = map_logits(logits=[1, 2], mapping="softmax").headers["server-timing"]
    parts = dict(part.strip().split(";dur=") for part in timing.split(","))
    assert set(parts) == {"decode", "queue", "compute", "encode"}
    assert all(float(milliseconds) >= 0 for milliseconds in parts.values())


@pytest.mark.parametrize(
    "content_type",
    [None, "application/json", "application/json; charset=utf-8", "Application/JSON"],
)
def test_json_is_read_with_or_without_its_media_type(content_type: str | None) -> None:
    headers = {} if content_type is None else {"content-type": content_type}
    body = '{"logits": [0, 0], "mapping": "softmax"}'
    response = shared_client().post("/v1/map", content=body, headers=headers)
    assert response.json()["probabilities"] == [[0.5, 0.5]]
    assert response.headers["content-type"] == "application/json"
    assert int(response.headers["content-length"]) == len(response.content)
