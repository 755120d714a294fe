"""POST /v1/sample draws what the contract promises, over a real socket."""

import math
from typing import Any

import numpy as np
import pytest

from server import post

LARGEST_SEED = 2**64 - 1


def sample(**fields: Any) -> dict[str, Any]:
    response = post("/v1/sample", fields)
    assert response.status_code == 200, response.text
    document: dict[str, Any] = response.json()
    return document


def tokens(**fields: Any) -> list[Any]:
    found: list[Any] = sample(**fields)["tokens"]
    return found


def refused(**fields: Any) -> dict[str, Any]:
    response = post("/v1/sample", fields)
    assert response.status_code == 422, response.text
    problem: dict[str, Any] = response.json()
    return problem


def randoms(*shape: int) -> Any:
    return np.random.default_rng(5).standard_normal(shape).round(6).tolist()


def test_tokens_and_their_log_probabilities_are_the_default() -> None:
    got = sample(logits=[[0, math.log(3)], [7, None]], mapping="softmax", seed=7)
    assert list(got) == ["mapping", "rows", "seed", "tokens", "token_log_probabilities"]
    assert got["tokens"][1] == [0]
    chosen = got["tokens"][0][0]
    assert got["token_log_probabilities"][0] == [
        pytest.approx(math.log([0.25, 0.75][chosen]), abs=1e-15)
    ]
    assert got["token_log_probabilities"][1] == [0]


def test_the_seed_given_is_returned_and_repeats_the_tokens() -> None:
    asked = {"logits": randoms(3, 50), "mapping": "softmax", "samples": 20, "seed": 11}
    first, second = sample(**asked), sample(**asked)
    assert first == second
    assert first["seed"] == 11
    assert sample(**{**asked, "seed": 12})["tokens"] != first["tokens"]


def test_a_seed_that_is_not_given_is_drawn_returned_and_can_be_reused() -> None:
    asked = {"logits": randoms(50), "mapping": "softmax", "samples": 20}
    drawn = [sample(**asked), sample(**asked, seed=None)]
    assert drawn[0]["seed"] != drawn[1]["seed"]
    for got in drawn:
        assert 0 <= got["seed"] < 2**53
        assert sample(**asked, seed=got["seed"])["tokens"] == got["tokens"]


def test_every_row_has_its_own_seed_up_to_64_bits() -> None:
    seeds = [0, 1, 2**53 + 1, 2**63, LARGEST_SEED - 1, LARGEST_SEED]
    row = randoms(200)
    got = sample(logits=[row] * 6, mapping="softmax", seed=seeds, samples=20)
    assert got["seed"] == seeds
    assert len({tuple(drawn) for drawn in got["tokens"]}) == 6
    for seed, drawn in zip(seeds, got["tokens"], strict=True):
        assert tokens(logits=row, mapping="softmax", seed=seed, samples=20) == [drawn]


def test_rows_with_the_same_seed_draw_the_same_tokens_alone_and_together() -> None:
    row = randoms(100)
    alone = tokens(logits=row, mapping="entmax", seed=3, samples=5)
    for _ in range(2):
        assert tokens(logits=[row] * 64, mapping="entmax", seed=3, samples=5) == alone * 64


@pytest.mark.parametrize("replacement", [True, False])
def test_a_row_draws_the_same_tokens_at_any_place_of_a_ragged_batch(replacement: bool) -> None:
    rows = randoms(6, 40)
    ragged = [row[: 40 - 3 * place] for place, row in enumerate(rows)]
    seeds = [41, 42, 43, 44, 45, 46]
    asked = {"mapping": "softmax", "samples": 7, "replacement": replacement}
    batch = tokens(logits=ragged, seed=seeds, **asked)
    turned = tokens(logits=ragged[::-1], seed=seeds[::-1], **asked)
    assert turned[::-1] == batch
    for row, seed, drawn in zip(ragged, seeds, batch, strict=True):
        assert tokens(logits=row, seed=seed, **asked) == [drawn]


def test_fewer_samples_are_the_first_of_more() -> None:
    asked = {"logits": randoms(30), "mapping": "softmax", "seed": 9}
    many = tokens(samples=100, **asked)[0]
    for samples in (1, 2, 99):
        assert tokens(samples=samples, **asked) == [many[:samples]]


@pytest.mark.parametrize("mapping", ["softmax", "sparsemax", {"name": "perturb_max"}], ids=str)
def test_tokens_follow_the_distribution(mapping: object) -> None:
    draws = 100_000
    got = sample(
        logits=[0, 0.25, None, 0.75],
        mapping=mapping,
        samples=draws,
        seed=2024,
        outputs=["tokens", "probabilities"],
    )
    shares = np.bincount(got["tokens"][0], minlength=4) / draws
    # Five standard deviations of a share are at most 0.008.
    assert np.abs(shares - np.array(got["probabilities"][0])).max() < 0.008
    assert shares[2] == 0


@pytest.mark.parametrize(
    "chain",
    [
        [{"name": "top_k", "k": 3}],
        [{"name": "ban", "ids": [7, 8, 9]}],
        [{"name": "allow", "ids": [0, 9]}],
        [{"name": "min_p", "ratio": 0.5}],
        ["p_less"],
    ],
    ids=lambda chain: str(chain[0]),
)
@pytest.mark.parametrize("replacement", [True, False])
def test_a_class_of_probability_zero_is_never_drawn(chain: list[Any], replacement: bool) -> None:
    got = sample(
        logits=[[0, 0.5, 1, 1.5, None, 2, 2.5, 3, 3.5, 4]] * 50,
        mapping="softmax",
        processors=chain,
        samples=200 if replacement else 1,
        replacement=replacement,
        seed=list(range(50)),
        outputs=["tokens", "support"],
    )
    for row, support in zip(got["tokens"], got["support"], strict=True):
        assert set(row) <= set(support["indices"])


def test_without_replacement_no_class_comes_twice() -> None:
    rows = randoms(20, 12)
    got = sample(
        logits=rows, mapping="softmax", samples=12, replacement=False, seed=list(range(20))
    )
    for row in got["tokens"]:
        assert sorted(row) == list(range(12))
    assert len({tuple(row) for row in got["tokens"]}) == 20


def test_the_first_token_without_replacement_follows_the_distribution() -> None:
    rows = 40_000
    got = tokens(
        logits=[[0, math.log(2), math.log(5)]] * rows,
        mapping="softmax",
        samples=2,
        replacement=False,
        seed=list(range(rows)),
    )
    first, second = np.array(got).T
    shares = np.bincount(first, minlength=3) / rows
    assert np.abs(shares - np.array([1, 2, 5]) / 8).max() < 0.0125
    # Once the class of 5/8 is gone, the others share the rest as 1 to 2.
    rest = np.bincount(second[first == 2], minlength=3) / (first == 2).sum()
    assert np.abs(rest - np.array([1, 2, 0]) / 3).max() < 0.016


def test_more_samples_than_classes_name_the_row() -> None:
    asked = {"mapping": "softmax", "samples": 2, "replacement": False, "seed": 1}
    problem = refused(logits=[[0, 1, 2], [5, None, None]], **asked)
    assert problem["code"] == "invalid_parameter"
    assert problem["errors"][0]["loc"] == ["samples"]
    assert "row 1 " in problem["detail"]
    assert "2 samples" in problem["detail"]
    assert "replacement" in problem["detail"]


def test_what_map_answers_is_answered_beside_the_tokens() -> None:
    asked = {"logits": [[0, 1, 2], [3, None, 3]], "mapping": {"name": "entmax", "alpha": [1, 2]}}
    outputs = [
        *("probabilities", "log_probabilities", "support", "normalizer", "entropy"),
        *("support_size", "jacobian", "parameter_gradients"),
    ]
    mapped = post("/v1/map", {**asked, "outputs": outputs}).json()
    drawn = sample(**asked, outputs=["tokens", "token_log_probabilities", *outputs], samples=3)
    assert {name: drawn[name] for name in mapped} == mapped
    for row in range(2):
        for token, log in zip(
            drawn["tokens"][row], drawn["token_log_probabilities"][row], strict=True
        ):
            assert log == drawn["log_probabilities"][row][token]
    assert set(sample(**asked, outputs=["entropy"])) == {"mapping", "rows", "seed", "entropy"}


def test_the_flat_form_takes_the_fields_of_the_mapping() -> None:
    flat = sample(logits=[0, 0.5, 1], mapping="entmax", alpha=2, seed=5, samples=10)
    whole = sample(logits=[0, 0.5, 1], mapping={"name": "entmax", "alpha": 2}, seed=5, samples=10)
    assert flat == whole
    assert set(flat["tokens"][0]) <= {1, 2}


def test_the_seed_beside_a_name_is_the_request_s() -> None:
    row = randoms(50)
    mapping = {"name": "gumbel_softmax", "seed": 1}
    first = sample(logits=row, mapping=mapping, seed=2, outputs=["tokens", "probabilities"])
    assert (first["mapping"]["seed"], first["seed"]) == (1, 2)
    other = sample(
        logits=row, mapping=mapping, seed=LARGEST_SEED, samples=9, outputs=["probabilities"]
    )
    assert other["probabilities"] == first["probabilities"]
    problem = refused(logits=row, mapping="gumbel_softmax", seed=2)
    assert problem["errors"][0]["loc"] == ["mapping", "seed"]
    assert '{"name": "gumbel_softmax", "seed": …}' in problem["detail"]


def test_a_hard_gumbel_softmax_draws_its_one_class() -> None:
    mapping = {"name": "gumbel_softmax", "seed": 8, "hard": True}
    got = sample(
        logits=randoms(60), mapping=mapping, samples=5, outputs=["tokens", "probabilities"]
    )
    assert got["tokens"] == [[got["probabilities"][0].index(1)] * 5]


def test_rows_of_different_lengths_draw_from_their_own_classes() -> None:
    got = tokens(
        logits=[[0] * 9, [1], [2, 2], [None, None, 4]],
        mapping="softmax",
        samples=300,
        seed=[1, 2, 3, 4],
    )
    assert [set(row) for row in got] == [set(range(9)), {0}, {0, 1}, {2}]


@pytest.mark.parametrize("replacement", [True, False])
def test_a_row_without_an_answer_has_no_tokens(replacement: bool) -> None:
    got = sample(
        logits=[[0, 1, 2], [None, None], [1, 1]],
        mapping="softmax",
        samples=2,
        replacement=replacement,
        seed=[5, 6, 7],
        invalid_rows="report",
    )
    assert got["status"] == ["ok", "no unmasked class", "ok"]
    assert got["tokens"][1] is None
    assert got["token_log_probabilities"][1] is None
    for row, place in (([0, 1, 2], 0), ([1, 1], 2)):
        asked = {"logits": row, "mapping": "softmax", "samples": 2, "replacement": replacement}
        assert tokens(**asked, seed=[5, 6, 7][place]) == [got["tokens"][place]]


def test_an_empty_batch_draws_nothing() -> None:
    got = sample(logits=[], mapping="softmax", samples=3, seed=4)
    assert (got["rows"], got["seed"], got["tokens"]) == (0, 4, [])


@pytest.mark.parametrize("mapping", ["softmax", "sparsemax"])
def test_the_last_class_of_a_vocabulary_can_be_drawn(mapping: str) -> None:
    row = [0.0] * 150_000 + [40.0]
    got = sample(logits=row, mapping=mapping, samples=3, seed=1)
    assert got["tokens"] == [[150_000] * 3]
    assert got["token_log_probabilities"][0] == pytest.approx([0] * 3, abs=1e-11)


def test_tokens_are_the_same_in_both_precisions_where_the_distribution_is() -> None:
    asked = {"logits": [0, 0, 0, 0], "mapping": "softmax", "samples": 50, "seed": 6}
    single = sample(**asked, dtype="float32")
    assert single["tokens"] == sample(**asked)["tokens"]
    assert single["token_log_probabilities"][0] == pytest.approx([-math.log(4)] * 50, rel=1e-6)


def test_a_long_list_of_seeds_is_read_as_a_short_one() -> None:
    rows = 8000
    seeds = [LARGEST_SEED - place for place in range(rows)]
    got = sample(logits=[[0, 0, 0, 0]] * rows, mapping="softmax", seed=seeds, samples=4)
    assert got["seed"] == seeds
    for place in (0, 1, rows - 1):
        alone = tokens(logits=[0, 0, 0, 0], mapping="softmax", seed=seeds[place], samples=4)
        assert alone == [got["tokens"][place]]


@pytest.mark.parametrize(
    ("fields", "loc"),
    [
        ({"seed": -1}, ["seed"]),
        ({"seed": 2**64}, ["seed"]),
        ({"seed": 1.0}, ["seed"]),
        ({"seed": True}, ["seed"]),
        ({"seed": "7"}, ["seed"]),
        ({"seed": {}}, ["seed"]),
        ({"seed": [1, 2]}, ["seed"]),
        ({"seed": []}, ["seed"]),
        ({"seed": [None]}, ["seed", 0]),
        ({"seed": [[1]]}, ["seed", 0]),
        ({"seed": [2**64]}, ["seed", 0]),
        ({"seed": [1] * 40_000}, ["seed"]),
        ({"samples": 0}, ["samples"]),
        ({"samples": -1}, ["samples"]),
        ({"samples": 1.0}, ["samples"]),
        ({"samples": True}, ["samples"]),
        ({"samples": [1]}, ["samples"]),
        ({"samples": "1"}, ["samples"]),
        ({"samples": None}, ["samples"]),
        ({"samples": 2**20 + 1}, ["samples"]),
        ({"samples": 10**30}, ["samples"]),
        ({"replacement": 1}, ["replacement"]),
        ({"replacement": None}, ["replacement"]),
        ({"replacement": "false"}, ["replacement"]),
        ({"outputs": []}, ["outputs"]),
        ({"outputs": ["loss"]}, ["outputs", 0]),
        ({"outputs": ["tokens", "token"]}, ["outputs", 1]),
        ({"targets": [0]}, ["targets"]),
        ({"sample": 3}, ["sample"]),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_wrong_is_located(fields: dict[str, Any], loc: list[str | int]) -> None:
    problem = refused(**{"logits": [0, 1], "mapping": "softmax", **fields})
    assert problem["errors"][0]["loc"] == loc
    assert problem["errors"][0]["message"]


def test_more_tokens_than_an_answer_may_hold_name_the_limit() -> None:
    response = post("/v1/sample", logits=[[0, 1]] * 17, mapping="softmax", samples=2**20)
    assert response.status_code == 413
    detail = response.json()["detail"]
    assert "fewer samples" in detail
    assert "--max-output-elements" in detail
