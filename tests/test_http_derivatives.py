"""Jacobians and parameter gradients in every form of the contract, over a real socket."""

import math
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from mappings.registry import MAPPINGS
from server import map_logits, post, running_server

Loc = list[str | int]

RAGGED = [[0, 1, 2], [1, None, 3], [4, 5]]
MAPPINGS_ASKED: list[dict[str, Any]] = [
    {"name": "softmax", "temperature": [1, 2, 0.5]},
    {"name": "sparsemax", "temperature": 4},
    {"name": "entmax", "alpha": [1, 1.5, 3], "temperature": 2},
    {"name": "r_softmax", "r": 0.25},
    {"name": "perturb_max"},
    {"name": "spherical_softmax", "epsilon": 1},
]


def answer(**fields: Any) -> dict[str, Any]:
    response = map_logits(fields)
    assert response.status_code == 200, response.text
    document: dict[str, Any] = response.json()
    return document


def jacobian(form: str, vector: Any = None, **fields: Any) -> Any:
    asked = {"form": form} if vector is None else {"form": form, "vector": vector}
    return answer(**fields, outputs=["jacobian"], jacobian=asked)["jacobian"]


def products(rows: list[Any], vectors: list[Any]) -> list[Any]:
    """Each matrix times its vector."""
    return [np.array(a) @ np.array(v) for a, v in zip(rows, vectors, strict=True)]


def assert_rows(got: list[Any], wanted: list[Any], absolute: float = 1e-14) -> None:
    assert len(got) == len(wanted)
    for found, exact in zip(got, wanted, strict=True):
        assert np.shape(found) == np.shape(exact)
        assert np.allclose(found, exact, rtol=0, atol=absolute)


def test_the_dense_jacobian_of_softmax_is_diag_p_less_p_p() -> None:
    p = np.array([1, 2, 5]) / 8
    got = jacobian("dense", logits=[0, math.log(2), math.log(5)], mapping="softmax")
    assert_rows(got, [np.diag(p) - np.outer(p, p)])


def test_the_dense_jacobian_of_sparsemax_is_a_projection_on_its_support() -> None:
    got = jacobian("dense", logits=[[0, 2, 1.5], [3, 0, None]], mapping="sparsemax")
    assert got == [[[0, 0, 0], [0, 0.5, -0.5], [0, -0.5, 0.5]], [[0, 0, 0]] * 3]


def test_dense_is_the_form_when_none_is_given() -> None:
    asked = {"logits": RAGGED, "mapping": "softmax"}
    dense = answer(**asked, outputs=["jacobian"])
    assert dense == answer(**asked, outputs=["jacobian"], jacobian={})
    assert dense["jacobian"] == jacobian("dense", **asked)


@pytest.mark.parametrize("outputs", [None, ["entropy"], ["jacobian"], ["probabilities"]], ids=str)
def test_a_jacobian_given_but_not_listed_is_answered(outputs: list[str] | None) -> None:
    asked: dict[str, Any] = {"logits": [0, 0], "mapping": "softmax", "jacobian": {"form": "dense"}}
    got = answer(**asked, **({"outputs": outputs} if outputs else {}))
    listed = {*(outputs or ["probabilities"]), "jacobian"}
    assert set(got) == {"mapping", "rows", *listed}
    assert got["jacobian"] == [[[0.25, -0.25], [-0.25, 0.25]]]


def test_no_jacobian_is_answered_unasked() -> None:
    assert "jacobian" not in answer(logits=[0, 0], mapping="softmax", jacobian=None)


@pytest.mark.parametrize("mapping", MAPPINGS_ASKED, ids=lambda mapping: str(mapping["name"]))
@pytest.mark.parametrize(
    "chain",
    [
        [],
        [{"name": "temperature", "value": [2, 1, 4]}, {"name": "top_k", "k": 2}],
        [{"name": "repetition_penalty", "penalty": 1.5, "ids": [0, 1]}],
    ],
    ids=["plain", "cut", "penalty"],
)
def test_every_form_says_the_same_of_ragged_and_masked_rows(
    mapping: dict[str, Any], chain: list[Any]
) -> None:
    asked = {"logits": RAGGED, "mapping": mapping, "processors": chain}
    dense = jacobian("dense", **asked)
    assert [np.shape(matrix) for matrix in dense] == [(3, 3), (3, 3), (2, 2)]
    masked = np.array(dense[1])
    assert not masked[1].any()
    assert not masked[:, 1].any()

    supports = answer(**asked, outputs=["support"])["support"]
    blocks = jacobian("support", **asked)
    assert [block["indices"] for block in blocks] == [row["indices"] for row in supports]
    cut = [
        np.array(matrix)[np.ix_(block["indices"], block["indices"])]
        for matrix, block in zip(dense, blocks, strict=True)
    ]
    assert_rows([block["values"] for block in blocks], cut)

    factors = jacobian("factors", **asked)
    assert list(factors) == ["diagonal", "left", "right"]
    assert [len(row) for row in factors["diagonal"]] == [3, 3, 2]
    assert [len(row) for row in factors["left"]] == [3, 3, 2]
    whole = [
        np.diag(d) - np.array(left) @ np.array(right).T
        for d, left, right in zip(*factors.values(), strict=True)
    ]
    assert_rows(whole, dense, 1e-13)

    vectors = [[1, -2, 3], [0.5, 100, 0.25], [7, -1]]
    assert_rows(jacobian("jvp", vectors, **asked), products(dense, vectors), 1e-13)
    turned = [np.array(matrix).T for matrix in dense]
    assert_rows(jacobian("vjp", vectors, **asked), products(turned, vectors), 1e-13)


def test_a_flat_vector_is_that_of_one_row() -> None:
    flat = jacobian("jvp", [1, 0, 0], logits=[1, 1, 1], mapping="softmax")
    assert flat == jacobian("jvp", [[1, 0, 0]], logits=[[1, 1, 1]], mapping="softmax")
    assert_rows(flat, [[2 / 9, -1 / 9, -1 / 9]])


def test_a_support_limit_cuts_the_jacobian_of_the_support_too() -> None:
    got = answer(
        logits=[0, math.log(2), math.log(5)],
        mapping="softmax",
        outputs=["support"],
        jacobian={"form": "support"},
        support_limit=2,
    )
    assert got["support"][0]["indices"] == got["jacobian"][0]["indices"] == [2, 1]
    assert_rows([got["jacobian"][0]["values"]], [[[15 / 64, -10 / 64], [-10 / 64, 12 / 64]]])


@pytest.mark.parametrize("form", ["dense", "support", "jvp", "vjp", "factors"])
def test_a_row_without_an_answer_is_null_in_every_form(form: str) -> None:
    vector = [[1, 2, 3], [1], [1, 2]] if form in ("jvp", "vjp") else None
    asked = {"mapping": {"name": "entmax", "alpha": 1.25}}
    got = jacobian(form, vector, logits=[[0, 1, 2], [None], [4, 5]], invalid_rows="report", **asked)
    first = jacobian(form, vector and vector[:1], logits=[[0, 1, 2]], **asked)
    last = jacobian(form, vector and vector[2:], logits=[[4, 5]], **asked)
    if form == "factors":
        for name, rows in got.items():
            assert rows == [first[name][0], None, last[name][0]]
    else:
        assert got == [first[0], None, last[0]]


@pytest.mark.parametrize("form", ["dense", "support", "jvp", "vjp", "factors"])
def test_an_empty_batch_has_an_empty_jacobian(form: str) -> None:
    vector: list[Any] | None = [] if form in ("jvp", "vjp") else None
    got = jacobian(form, vector, logits=[], mapping="softmax")
    assert got == ({"diagonal": [], "left": [], "right": []} if form == "factors" else [])


def test_where_the_mapping_is_flat_the_jacobian_is_zero() -> None:
    for mapping in (
        {"name": "softmax", "temperature": 0},
        {"name": "gumbel_softmax", "seed": 1, "hard": True},
    ):
        assert jacobian("dense", logits=[1, 2], mapping=mapping) == [[[0, 0], [0, 0]]]


def test_the_jacobian_is_answered_in_the_precision_asked_for() -> None:
    asked = {"logits": [0, 0, 0], "mapping": "softmax", "outputs": ["jacobian"]}
    assert "0.22222222," in map_logits({**asked, "dtype": "float32"}).text
    assert "0.22222222222222" in map_logits(asked).text


@pytest.mark.parametrize("form", ["jvp", "vjp"])
def test_a_long_vector_is_read_as_a_short_one(form: str) -> None:
    classes = 40_000
    row = [0.0] * classes
    row[7] = row[39_999] = 50.0
    vector = [1.0] * classes
    vector[7] = 3
    (got,) = jacobian(form, vector, logits=row, mapping="sparsemax")
    assert (got[7], got[39_999]) == (1, -1)
    assert sum(map(abs, got)) == 2
    nested = jacobian(form, [vector, [2, 0]], logits=[row, [0, 0]], mapping="sparsemax")
    assert nested == [got, [1, -1]]


WRONG: dict[str, tuple[object, Loc, str]] = {
    "no vector for jvp": ({"form": "jvp"}, ["jacobian", "vector"], "missing"),
    "no vector for vjp": ({"form": "vjp"}, ["jacobian", "vector"], "missing"),
    "null for the vector": (
        {"form": "jvp", "vector": None},
        ["jacobian", "vector"],
        "missing",
    ),
    "a flat vector for two rows": (
        {"form": "jvp", "vector": [1, 2, 3]},
        ["jacobian", "vector"],
        "1 rows for 2 rows",
    ),
    "a row too few": ({"form": "jvp", "vector": [[1, 2, 3]]}, ["jacobian", "vector"], "1 rows"),
    "a row too many": (
        {"form": "vjp", "vector": [[1, 2, 3], [1, 2], [1]]},
        ["jacobian", "vector"],
        "3 rows",
    ),
    "an empty vector": ({"form": "vjp", "vector": []}, ["jacobian", "vector"], "0 rows"),
    "a row too short": (
        {"form": "vjp", "vector": [[1, 2, 3], [1]]},
        ["jacobian", "vector", 1],
        "1 numbers for 2 classes",
    ),
    "a row too long": (
        {"form": "vjp", "vector": [[1, 2, 3, 4], [1, 2]]},
        ["jacobian", "vector", 0],
        "4 numbers for 3 classes",
    ),
    "a null in the vector": (
        {"form": "jvp", "vector": [[1, 2, 3], [None, 2]]},
        ["jacobian", "vector", 1, 0],
        "null",
    ),
    "true in the vector": (
        {"form": "jvp", "vector": [[1, 2, 3], [1, True]]},
        ["jacobian", "vector", 1, 1],
        "true or false",
    ),
    "a string in the vector": (
        {"form": "jvp", "vector": [["1", 2, 3], [1, 2]]},
        ["jacobian", "vector", 0, 0],
        "a string",
    ),
    "a string for the vector": ({"form": "jvp", "vector": "1"}, ["jacobian", "vector"], "array"),
    "a number for the vector": ({"form": "jvp", "vector": 1}, ["jacobian", "vector"], "array"),
    "an object for the vector": ({"form": "jvp", "vector": {}}, ["jacobian", "vector"], "array"),
    "a bad vector that the form does not need": (
        {"form": "dense", "vector": [1]},
        ["jacobian", "vector"],
        "1 rows",
    ),
    "an unknown form": ({"form": "hessian"}, ["jacobian", "form"], "'dense', 'support'"),
    "null for the form": ({"form": None}, ["jacobian", "form"], "'dense', 'support'"),
    "a form that is a list": ({"form": ["jvp"]}, ["jacobian", "form"], "'dense', 'support'"),
    "a form alone": ("dense", ["jacobian"], "object"),
    "a list": ([[1, 2]], ["jacobian"], "object"),
    "a long list": ([0.5] * 50_000, ["jacobian"], "object"),
    "true": (True, ["jacobian"], "object"),
    "an unknown field": (
        {"form": "jvp", "vectors": [1]},
        ["jacobian", "vectors"],
        "did you mean vector?",
    ),
    "an unknown field named as a tag": ({"one": 1}, ["jacobian", "one"], "form, vector"),
    "a long vector with true": (
        {"form": "jvp", "vector": [[0.5] * 50_000 + [True]]},
        ["jacobian", "vector", 0, 50_000],
        "true or false",
    ),
    "a long vector with a null": (
        {"form": "jvp", "vector": [[1, 2, 3], [0.5] * 50_000 + [None]]},
        ["jacobian", "vector", 1, 50_000],
        "null",
    ),
    "a long vector for short rows": (
        {"form": "jvp", "vector": [[1, 2, 3], [0.5] * 50_000]},
        ["jacobian", "vector", 1],
        "50000 numbers for 2 classes",
    ),
}


@pytest.mark.parametrize("path", ["/v1/map", "/v1/sample"])
@pytest.mark.parametrize(("asked", "loc", "words"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_located(asked: object, loc: Loc, words: str, path: str) -> None:
    body = {"logits": [[0, 1, 2], [0, 1]], "mapping": "softmax", "jacobian": asked}
    response = post(path, body)
    assert response.status_code == 422, response.text
    problem = response.json()
    assert problem["errors"][0]["loc"] == loc
    assert words in problem["detail"]
    assert len(response.content) < 2000


def test_the_error_of_a_long_unknown_name_is_small() -> None:
    response = map_logits(logits=[1], mapping="softmax", jacobian={"x" * 1_000_000: 1})
    assert response.status_code == 422
    assert len(response.content) < 2000


@pytest.fixture(scope="module")
def small_server() -> Iterator[str]:
    """Where a server listens that answers few numbers."""
    with running_server("--max-output-elements", "1000") as server:
        yield server.url


@pytest.mark.parametrize(
    ("fields", "cure"),
    [
        ({"logits": [0.5] * 40, "mapping": "softmax", "jacobian": {"form": "dense"}}, "factors"),
        ({"logits": [0.5] * 40, "mapping": "softmax", "outputs": ["jacobian"]}, "factors"),
        ({"logits": [[0.5] * 20] * 3, "mapping": "softmax", "jacobian": {}}, "factors"),
        ({"logits": [0.5] * 40, "mapping": "softmax", "jacobian": {"form": "support"}}, "factors"),
        ({"logits": [0.5] * 40, "mapping": "perturb_max", "jacobian": {"form": "factors"}}, "jvp"),
    ],
    ids=["dense", "dense unsaid", "dense rows", "support", "factors"],
)
def test_a_jacobian_beyond_the_limit_names_it_and_what_to_ask_instead(
    small_server: str, fields: dict[str, Any], cure: str
) -> None:
    response = httpx.post(f"{small_server}/v1/map", json=fields)
    assert response.status_code == 413, response.text
    problem = response.json()
    assert "1,000" in problem["detail"]
    assert "--max-output-elements" in problem["detail"]
    assert "PROBMAP_MAX_OUTPUT_ELEMENTS" in problem["detail"]
    assert cure in problem["detail"]
    assert "vjp" in problem["detail"]
    row = fields["logits"] if len(fields["logits"]) == 40 else fields["logits"][0]
    for form in ("jvp", "vjp"):
        asked = {"form": form, "vector": [1] * len(row)}
        body = {"logits": row, "mapping": "softmax", "jacobian": asked}
        assert httpx.post(f"{small_server}/v1/map", json=body).status_code == 200


def test_products_of_a_vocabulary_are_within_the_limit() -> None:
    classes = 150_000
    got = jacobian("vjp", [1] * classes, logits=[0.25] * classes, mapping="softmax")
    assert max(map(abs, got[0])) < 1e-15
    asked = {"logits": [0.25] * classes, "mapping": "softmax", "outputs": ["jacobian"]}
    assert map_logits(asked).status_code == 413


def test_the_gradient_by_temperature_is_minus_the_jacobian_times_the_logits() -> None:
    got = answer(
        logits=[[0, math.log(2), math.log(5)], [0, None, 0], [3, 1]],
        mapping={"name": "softmax", "temperature": [1, 2, 0.5]},
        outputs=["parameter_gradients", "probabilities"],
    )
    # ∂p_i/∂T = −p_i (x_i − Σ p x)/T².
    for row, logits, temperature in zip(
        range(3), [[0, math.log(2), math.log(5)], [0, 0, 0], [3, 1]], [1, 2, 0.5], strict=True
    ):
        p, x = np.array(got["probabilities"][row]), np.array(logits)
        wanted = -p * (x - p @ x) / temperature**2
        assert_rows([got["parameter_gradients"]["temperature"][row]], [wanted])


def test_only_entmax_has_a_gradient_by_alpha() -> None:
    for name, mapping in MAPPINGS.items():
        required = {"seed": 1, "target": 0, "weights": [1, 2]}
        fields = {key: required[key] for key in required if key in mapping.model_fields}
        got = answer(
            logits=[0.25, 0.5], mapping={"name": name, **fields}, outputs=["parameter_gradients"]
        )["parameter_gradients"]
        assert set(got) == {"temperature"} | ({"alpha"} if name == "entmax" else set())
        assert all(len(row) == 2 for rows in got.values() for row in rows)


@pytest.mark.parametrize("alpha", [1, 1.25, 1.5, 2, 3])
def test_gradients_by_parameters_are_difference_quotients(alpha: float) -> None:
    # Within 1e-6 of 1 entmax is softmax, so a step by alpha must be larger.
    step = 1e-4
    for parameter in ("alpha", "temperature"):
        centre = {"alpha": alpha, "temperature": 0.75}
        shifted = {
            name: [value + sign * step * (name == parameter) for sign in (1, -1)]
            for name, value in centre.items()
        }
        row = [0.5, 0.25, 0.375, 0.4375]
        up, down = answer(logits=[row] * 2, mapping={"name": "entmax", **shifted})["probabilities"]
        got = answer(
            logits=row, mapping={"name": "entmax", **centre}, outputs=["parameter_gradients"]
        )
        quotients = (np.array(up) - np.array(down)) / (2 * step)
        assert_rows([got["parameter_gradients"][parameter][0]], [quotients], 1e-7)


def test_rows_without_an_answer_have_no_gradients_by_parameters() -> None:
    asked = {"mapping": "entmax", "outputs": ["parameter_gradients"]}
    got = answer(logits=[[0, 1, 2], [None], [4, 4.5]], invalid_rows="report", **asked)
    last = answer(logits=[4, 4.5], **asked)["parameter_gradients"]
    for name, rows in got["parameter_gradients"].items():
        assert [row is None for row in rows] == [False, True, False]
        assert [len(rows[0]), len(rows[2])] == [3, 2]
        assert rows[2] == last[name][0]


def test_at_temperature_0_the_gradient_by_temperature_is_zero() -> None:
    got = answer(
        logits=[[1, 2], [2, 2]],
        mapping={"name": "softmax", "temperature": 0},
        outputs=["parameter_gradients"],
    )
    assert got["parameter_gradients"] == {"temperature": [[0, 0], [0, 0]]}
