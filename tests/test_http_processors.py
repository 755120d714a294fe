"""Processors on every endpoint, and what the service says of them, over a real socket."""

import json
import math
from typing import Any

import openapi_spec_validator
import pytest

from mappings.registry import PROCESSORS
from processor_cases import PROCESSOR_CASES, ProcessorCase
from schemas.description import ProcessorDescription
from server import map_logits, post, shared_client

Loc = list[str | int]

ROW = [math.log(value) for value in (8, 4, 2, 1, 1)]
"""Softmax of it is [8, 4, 2, 1, 1]/16; its entropy 1.875 bits, its deviation 1.17 bits."""

CASES: dict[str, tuple[dict[str, Any], list[float]]] = {
    "temperature": ({"value": 0.5}, [64, 16, 4, 1, 1]),
    "top_k": ({"k": 2}, [8, 4, 0, 0, 0]),
    "top_k all": ({"k": 4, "ties": "all"}, [8, 4, 2, 1, 1]),
    "top_k first": ({"k": 4, "ties": "first"}, [8, 4, 2, 1, 0]),
    "top_p": ({"p": 0.7}, [8, 4, 0, 0, 0]),
    "top_p all": ({"p": 0.9, "ties": "all"}, [8, 4, 2, 1, 1]),
    "top_p first": ({"p": 0.9, "ties": "first"}, [8, 4, 2, 1, 0]),
    "min_p": ({"ratio": 0.3}, [8, 4, 0, 0, 0]),
    "typical": ({"mass": 0.2}, [0, 4, 0, 0, 0]),
    "epsilon": ({"cutoff": 0.1}, [8, 4, 2, 0, 0]),
    "epsilon above all": ({"cutoff": 0.9}, [8, 0, 0, 0, 0]),
    "eta": ({"cutoff": 0.2}, [8, 4, 2, 0, 0]),
    "top_n_sigma": ({"n": 1.6}, [8, 4, 0, 0, 0]),
    "top_a": ({"a": 0.6}, [8, 4, 0, 0, 0]),
    "p_less": ({}, [8, 0, 0, 0, 0]),
    "allow": ({"ids": [3, 1]}, [0, 4, 0, 1, 0]),
    "ban": ({"ids": [0]}, [0, 4, 2, 1, 1]),
    "bias": ({"ids": [3, 4], "values": [math.log(2), math.log(3)]}, [8, 4, 2, 2, 3]),
    "repetition_penalty": ({"penalty": 2, "ids": [0, 4]}, [math.sqrt(8), 4, 2, 1, 1]),
    "presence_frequency": (
        {
            "presence": math.log(2),
            "frequency": math.log(2),
            "ids": [0, 1],
            "counts": [2, 0],
        },
        [1, 4, 2, 1, 1],
    ),
}
"""Processors with parameters, and what each leaves of ROW, up to a factor."""


def shares(weights: list[float]) -> Any:
    return pytest.approx([weight / sum(weights) for weight in weights], abs=1e-14)


def answer(path: str = "/v1/map", **fields: Any) -> dict[str, Any]:
    response = post(path, fields)
    assert response.status_code == 200, response.text
    document: dict[str, Any] = response.json()
    return document


def processed(logits: Any, *chain: Any) -> list[Any]:
    found: list[Any] = answer(logits=logits, mapping="softmax", processors=list(chain))[
        "probabilities"
    ]
    return found


def kept(logits: list[Any], *chain: Any) -> list[int]:
    (row,) = processed(logits, *chain)
    return [place for place, probability in enumerate(row) if probability > 0]


def refused(*chain: Any, **fields: Any) -> dict[str, Any]:
    body = {"logits": [[0, 1, 2], [0, 1]], "mapping": "softmax", "processors": list(chain)}
    response = map_logits({**body, **fields})
    assert response.status_code == 422, response.text
    assert len(response.content) < 20_000
    problem: dict[str, Any] = response.json()
    return problem


def named(case: str) -> dict[str, Any]:
    return {"name": case.split()[0], **CASES[case][0]}


@pytest.mark.parametrize("case", PROCESSOR_CASES, ids=str)
def test_every_case_of_every_processor_is_answered(case: ProcessorCase) -> None:
    row = [None if logit == -math.inf else logit for logit in case.row]
    (got,) = processed(row, case.request())
    top = max(case.outcome())
    assert got == shares([math.exp(logit - top) for logit in case.outcome()])


@pytest.mark.parametrize("case", CASES)
def test_every_processor_leaves_what_its_rule_says(case: str) -> None:
    assert processed(ROW, named(case)) == [shares(CASES[case][1])]


@pytest.mark.parametrize("case", CASES)
def test_masked_classes_stay_masked_and_change_nothing(case: str) -> None:
    """The mask stands before, between or behind the classes, and the ids move with them."""
    for places in ([1, 2, 3, 4, 5], [0, 1, 3, 4, 5], [0, 1, 2, 3, 4]):
        row: list[float | None] = [None] * 6
        wanted = [0.0] * 6
        for place, logit, weight in zip(places, ROW, CASES[case][1], strict=True):
            row[place], wanted[place] = logit, weight
        step = named(case)
        if "ids" in step:
            step["ids"] = [places[index] for index in step["ids"]]
        assert processed(row, step) == [shares(wanted)]


@pytest.mark.parametrize("case", CASES)
def test_a_uniform_row_keeps_something_under_every_processor(case: str) -> None:
    assert kept([0] * 1000, named(case))


@pytest.mark.parametrize("path", ["/v1/map", "/v1/sample", "/v1/loss"])
@pytest.mark.parametrize("case", CASES)
def test_a_chain_does_the_same_on_every_endpoint(case: str, path: str) -> None:
    target = {"targets": [1]} if path == "/v1/loss" else {}
    got = answer(
        path,
        logits=ROW,
        mapping="softmax",
        processors=[named(case), named(case)],
        outputs=["probabilities", "support"],
        **target,
    )
    mapped = answer(
        logits=ROW,
        mapping="softmax",
        processors=[named(case), named(case)],
        outputs=["probabilities", "support"],
    )
    assert {name: got[name] for name in mapped} == mapped


def test_tokens_and_losses_are_those_of_the_processed_row() -> None:
    asked = {"logits": ROW, "mapping": "softmax", "processors": [{"name": "top_k", "k": 2}]}
    drawn = answer("/v1/sample", **asked, samples=200, seed=3)
    assert set(drawn["tokens"][0]) == {0, 1}
    logs = set(drawn["token_log_probabilities"][0])
    assert sorted(logs) == pytest.approx([math.log(1 / 3), math.log(2 / 3)], abs=1e-14)
    lost = answer("/v1/loss", **asked, targets=[1])
    assert lost["loss"] == [pytest.approx(math.log(3), abs=1e-14)]
    assert lost["gradient"][0] == pytest.approx([2 / 3, -2 / 3, 0, 0, 0], abs=1e-14)


def test_a_name_alone_is_a_processor_without_parameters() -> None:
    assert processed(ROW, "p_less") == processed(ROW, {"name": "p_less"})


def test_no_processors_change_nothing() -> None:
    assert processed(ROW) == [shares([8, 4, 2, 1, 1])]
    assert answer(logits=ROW, mapping="softmax")["probabilities"] == processed(ROW)


def test_processors_act_in_the_order_given() -> None:
    cold, nucleus = {"name": "temperature", "value": 0.5}, {"name": "top_p", "p": 0.7}
    assert processed(ROW, cold, nucleus) == [[1, 0, 0, 0, 0]]
    assert processed(ROW, nucleus, cold) == [shares([64, 16, 0, 0, 0])]


def test_the_temperature_of_the_mapping_comes_last() -> None:
    chain = [{"name": "top_p", "p": 0.7}]
    got = answer(logits=ROW, mapping={"name": "softmax", "temperature": 0.5}, processors=chain)
    assert got["probabilities"] == [shares([64, 16, 0, 0, 0])]


def test_every_step_sees_what_the_last_one_left() -> None:
    assert kept(ROW, {"name": "ban", "ids": [0]}, {"name": "top_k", "k": 2}) == [1, 2]
    assert kept(ROW, {"name": "top_k", "k": 2}, {"name": "ban", "ids": [0]}) == [1]
    two = {"name": "bias", "ids": [4], "values": [math.log(2)]}
    assert processed(ROW, two, two, two) == [shares([8, 4, 2, 1, 8])]


def test_any_mapping_takes_processors() -> None:
    got = answer(
        logits=[0, 0.5, 1, 0.75], mapping="sparsemax", processors=[{"name": "ban", "ids": [3]}]
    )
    assert got["probabilities"] == [[0, 0.25, 0.75, 0]]


def test_32_processors_are_taken_and_33_are_not() -> None:
    assert processed(ROW, *["p_less"] * 32) == [[1, 0, 0, 0, 0]]
    problem = refused(*["p_less"] * 33)
    assert problem["errors"][0]["loc"] == ["processors"]
    assert "at most 32" in problem["detail"]
    assert "validation" not in problem["detail"]
    refused(*["p_less"] * 10_000)


PER_ROW = [
    ("temperature", "value", [1, 0.5], [[8, 4, 2, 1, 1], [64, 16, 4, 1, 1]]),
    ("top_k", "k", [1, 2], [[8, 0, 0, 0, 0], [8, 4, 0, 0, 0]]),
    ("top_p", "p", [0, 1], [[8, 0, 0, 0, 0], [8, 4, 2, 1, 1]]),
    ("min_p", "ratio", [0.2, 0.3], [[8, 4, 2, 0, 0], [8, 4, 0, 0, 0]]),
    ("typical", "mass", [0.2, 0.6], [[0, 4, 0, 0, 0], [8, 4, 0, 0, 0]]),
    ("epsilon", "cutoff", [0.1, 0.2], [[8, 4, 2, 0, 0], [8, 4, 0, 0, 0]]),
    ("eta", "cutoff", [0, 0.2], [[8, 4, 2, 1, 1], [8, 4, 2, 0, 0]]),
    ("top_n_sigma", "n", [0, 1.6], [[8, 0, 0, 0, 0], [8, 4, 0, 0, 0]]),
    ("top_a", "a", [0, 0.6], [[8, 4, 2, 1, 1], [8, 4, 0, 0, 0]]),
]


@pytest.mark.parametrize(
    ("name", "field", "values", "wanted"), PER_ROW, ids=[case[0] for case in PER_ROW]
)
def test_every_row_has_its_own_parameter(
    name: str, field: str, values: list[float], wanted: list[list[float]]
) -> None:
    for order in (1, -1):
        got = processed([ROW, ROW], {"name": name, field: values[::order]})
        assert got == [shares(row) for row in wanted[::order]]


def test_every_row_has_its_own_lists() -> None:
    rows = [ROW, ROW[:3]]
    assert processed(rows, {"name": "ban", "ids": [[3, 4], [0]]}) == [
        shares([8, 4, 2, 0, 0]),
        shares([0, 4, 2]),
    ]
    assert processed(rows, {"name": "allow", "ids": [[4], [0, 1]]}) == [
        [0, 0, 0, 0, 1],
        shares([8, 4, 0]),
    ]
    two = math.log(2)
    bias = {"name": "bias", "ids": [[0, 4], [2]], "values": [[-two, two], [two]]}
    assert processed(rows, bias) == [shares([4, 4, 2, 1, 2]), shares([8, 4, 4])]
    penalty = {"name": "repetition_penalty", "penalty": [3, 2], "ids": [[0], [0, 1]]}
    assert processed(rows, penalty) == [shares([2, 4, 2, 1, 1]), shares([math.sqrt(8), 2, 2])]
    used = {
        "name": "presence_frequency",
        "presence": [two, 0],
        "frequency": [0, two],
        "ids": [[0], [0, 1]],
        "counts": [[2], [3, 1]],
    }
    assert processed(rows, used) == [shares([4, 4, 2, 1, 1]), shares([1, 2, 2])]


def test_lists_may_be_empty() -> None:
    for step in (
        {"name": "ban", "ids": []},
        {"name": "ban", "ids": [[]]},
        {"name": "bias", "ids": [], "values": []},
        {"name": "presence_frequency", "ids": [], "counts": []},
    ):
        assert processed(ROW, step) == [shares([8, 4, 2, 1, 1])]


def test_an_id_named_twice_counts_once_or_adds_up() -> None:
    assert kept(ROW, {"name": "ban", "ids": [0, 0]}) == [1, 2, 3, 4]
    twice = {"name": "bias", "ids": [4, 4], "values": [math.log(2), math.log(4)]}
    assert processed(ROW, twice) == [shares([8, 4, 2, 1, 8])]


@pytest.mark.parametrize("path", ["/v1/map", "/v1/sample", "/v1/loss"])
def test_an_empty_batch_takes_processors(path: str) -> None:
    target: dict[str, Any] = {"targets": []} if path == "/v1/loss" else {}
    for case in CASES:
        got = answer(
            path,
            logits=[],
            mapping="softmax",
            processors=[named(case)],
            outputs=["probabilities", "support", "jacobian", "parameter_gradients"],
            **target,
        )
        assert (got["rows"], got["probabilities"], got["support"]) == (0, [], [])
        assert (got["jacobian"], got["parameter_gradients"]) == ([], {"temperature": []})


@pytest.mark.parametrize(
    ("row", "p", "classes"),
    [
        ([0.5, 0.3, 0.1, 0.1], 0.8, 2),
        ([0.5, 0.35, 0.1, 0.05], 0.9, 3),
        ([0.5, 0.3, 0.1, 0.1], 0, 1),
        ([0.25] * 4, 0, 1),
        ([0.25] * 4, 1e-4, 1),
        ([0.5, 0.3, 0.1, 0.1], 1, 4),
    ],
    ids=str,
)
def test_the_nucleus_is_the_smallest_that_holds_the_mass(
    row: list[float], p: float, classes: int
) -> None:
    assert len(kept([math.log(value) for value in row], {"name": "top_p", "p": p})) == classes


@pytest.mark.parametrize("p", [1, 0.9999999])
def test_a_nucleus_of_nearly_all_of_a_vocabulary_ends_within_it(p: float) -> None:
    classes = 128_256
    row = [0.0] * (classes - 1) + [-40.0]
    got = answer(
        logits=row,
        mapping="softmax",
        processors=[{"name": "top_p", "p": p}],
        outputs=["support_size"],
    )
    (size,) = got["support_size"]
    assert size == classes if p == 1 else classes * p <= size + 1 <= classes


@pytest.mark.parametrize(("k", "size"), [(50, 2), (2, 2), (2**53, 2), (1, 1)])
def test_top_k_beyond_the_classes_keeps_all(k: int, size: int) -> None:
    assert len(kept([1, 2], {"name": "top_k", "k": k})) == size


def test_ties_go_to_lower_class_ids_or_all_stay() -> None:
    row = [1, 2, 2, 2, 3]
    assert kept(row, {"name": "top_k", "k": 3, "ties": "first"}) == [1, 2, 4]
    assert kept(row, {"name": "top_k", "k": 3, "ties": "all"}) == [1, 2, 3, 4]


def test_typical_takes_classes_of_probability_zero() -> None:
    for row in ([0, -200, -1], [0, None, -1], [0, -1e300, -1]):
        (got,) = processed(row, {"name": "typical", "mass": 1})
        assert got == shares([1, 0, math.exp(-1)])


def test_the_deviation_is_that_of_the_unmasked_logits() -> None:
    row = [5, 4, 0, None]
    # The population deviation of 5, 4 and 0 is 2.1602, so 4 is 0.4629 of it below 5.
    assert kept(row, {"name": "top_n_sigma", "n": 0.4628}) == [0]
    assert kept(row, {"name": "top_n_sigma", "n": 0.463}) == [0, 1]


def test_a_penalty_makes_negative_logits_more_negative() -> None:
    step = {"name": "repetition_penalty", "penalty": 1.2, "ids": [0]}
    got = answer(logits=[-2, 0], mapping="softmax", processors=[step], outputs=["normalizer"])
    assert got["normalizer"] == [pytest.approx(math.log1p(math.exp(-2.4)), abs=1e-15)]


def test_the_logarithms_of_what_is_cut_off_are_null() -> None:
    got = answer(
        logits=[1, 3, 2],
        mapping="softmax",
        processors=[{"name": "top_k", "k": 1}],
        outputs=["log_probabilities"],
    )
    assert got["log_probabilities"] == [[None, 0, None]]


def test_a_row_that_a_processor_leaves_empty_is_named_or_reported() -> None:
    step = {"name": "ban", "ids": [[0], [0, 1]]}
    problem = refused(step)
    assert problem["code"] == "invalid_row"
    assert problem["errors"] == [
        {"loc": ["logits", 1], "message": "row 1: no unmasked class after ban"}
    ]
    got = answer(
        logits=[[0, 1, 2], [0, 1]],
        mapping="sparsemax",
        processors=[step],
        invalid_rows="report",
    )
    assert got["status"] == ["ok", "no unmasked class after ban"]
    assert got["probabilities"] == [[0, 0, 1], None]


LONG = list(range(30_000))
"""Class ids enough for the list to be parsed in pieces."""

BESIDE_IDS: dict[str, dict[str, Any]] = {
    "allow": {},
    "ban": {},
    "bias": {"values": [1, 1]},
    "repetition_penalty": {"penalty": 2},
    "presence_frequency": {"counts": [1, 1]},
}
"""For every processor with class ids, what stands beside two of them."""

WRONG: dict[str, tuple[Any, Loc, str]] = {
    "an unknown name": ("top_q", ["processors", 0, "name"], "did you mean top_p?"),
    "an unknown name in an object": (
        {"name": "topk", "k": 1},
        ["processors", 0, "name"],
        "did you mean top_k?",
    ),
    "a name like no other": ("zzz", ["processors", 0, "name"], "there are allow, ban"),
    "the name of a mapping": ("softmax", ["processors", 0, "name"], "there are allow, ban"),
    "no name": ({"k": 1}, ["processors", 0, "name"], "should be a name"),
    "null for the name": ({"name": None}, ["processors", 0, "name"], "should be a name"),
    "a number": (3, ["processors", 0], "a name or an object"),
    "null": (None, ["processors", 0], "a name or an object"),
    "a list": ([{"name": "p_less"}], ["processors", 0], "a name or an object"),
    "a parameter missing": ("top_k", ["processors", 0, "k"], "missing"),
    "an unknown field": (
        {"name": "top_k", "k": 1, "tie": "all"},
        ["processors", 0, "tie"],
        "did you mean ties?",
    ),
    "another processor's field": (
        {"name": "top_k", "k": 1, "p": 0.5},
        ["processors", 0, "p"],
        "top_k takes k, ties",
    ),
    "k = 0": ({"name": "top_k", "k": 0}, ["processors", 0, "k"], "1"),
    "k = −1": ({"name": "top_k", "k": -1}, ["processors", 0, "k"], "1"),
    "k = 1.0": ({"name": "top_k", "k": 1.0}, ["processors", 0, "k"], "integer"),
    "k = true": ({"name": "top_k", "k": True}, ["processors", 0, "k"], "integer"),
    "k as a string": ({"name": "top_k", "k": "1"}, ["processors", 0, "k"], "integer"),
    "k null": ({"name": "top_k", "k": None}, ["processors", 0, "k"], "integer"),
    "one k of a row wrong": (
        {"name": "top_k", "k": [1, 0]},
        ["processors", 0, "k", 1],
        "processors[0].k[1]",
    ),
    "three ks for two rows": ({"name": "top_k", "k": [1, 2, 3]}, ["processors", 0, "k"], "3"),
    "many ks for two rows": ({"name": "top_k", "k": LONG}, ["processors", 0, "k"], "30000"),
    "an unknown choice": (
        {"name": "top_k", "k": 1, "ties": "last"},
        ["processors", 0, "ties"],
        "'first' or 'all'",
    ),
    "a p above 1": ({"name": "top_p", "p": 1.01}, ["processors", 0, "p"], "1"),
    "a negative p": ({"name": "top_p", "p": -0.1}, ["processors", 0, "p"], "0"),
    "a p that is true": ({"name": "top_p", "p": True}, ["processors", 0, "p"], "number"),
    "a p that is a string": ({"name": "top_p", "p": "0.5"}, ["processors", 0, "p"], "number"),
    "a temperature of 0": (
        {"name": "temperature", "value": 0},
        ["processors", 0, "value"],
        "greater than 0",
    ),
    "a typical mass of 0": ({"name": "typical", "mass": 0}, ["processors", 0, "mass"], "0"),
    "an epsilon of 1": ({"name": "epsilon", "cutoff": 1}, ["processors", 0, "cutoff"], "1"),
    "an eta of 1": ({"name": "eta", "cutoff": 1}, ["processors", 0, "cutoff"], "1"),
    "a negative number of deviations": (
        {"name": "top_n_sigma", "n": -1},
        ["processors", 0, "n"],
        "0",
    ),
    "a top-a share above 1": ({"name": "top_a", "a": 2}, ["processors", 0, "a"], "1"),
    "a ratio above 1": ({"name": "min_p", "ratio": 1.5}, ["processors", 0, "ratio"], "1"),
    "a penalty of 0": (
        {"name": "repetition_penalty", "penalty": 0, "ids": [0]},
        ["processors", 0, "penalty"],
        "greater than 0",
    ),
    "a negative count": (
        {"name": "presence_frequency", "ids": [0], "counts": [-1]},
        ["processors", 0, "counts", 0],
        "0",
    ),
    "a parameter of a processor without": (
        {"name": "p_less", "p": 1},
        ["processors", 0, "p"],
        "unknown field",
    ),
    **{
        f"{name}: an id past the classes": (
            {"name": name, **fields, "ids": [0, 2]},
            ["processors", 0, "ids"],
            "class id 2 is not below the 2 classes of row 1",
        )
        for name, fields in BESIDE_IDS.items()
    },
    "an id past its own row's classes": (
        {"name": "ban", "ids": [[2], [0, 7]]},
        ["processors", 0, "ids"],
        "class id 7 is not below the 2 classes of row 1",
    ),
    "a very large id": ({"name": "ban", "ids": [2**53 - 1]}, ["processors", 0, "ids"], "row 1"),
    "a negative id": ({"name": "ban", "ids": [0, -1]}, ["processors", 0, "ids", 1], "0"),
    "a float for an id": ({"name": "ban", "ids": [0, 1.0]}, ["processors", 0, "ids", 1], "integer"),
    "true for an id": ({"name": "ban", "ids": [True]}, ["processors", 0, "ids", 0], "integer"),
    "null for an id": ({"name": "ban", "ids": [None]}, ["processors", 0, "ids", 0], "integer"),
    "a string for an id": ({"name": "ban", "ids": ["0"]}, ["processors", 0, "ids", 0], "integer"),
    "an id of 64 bits": ({"name": "ban", "ids": [2**64 - 1]}, ["processors", 0, "ids", 0], ""),
    "an id of 70 bits": ({"name": "ban", "ids": [2**70]}, ["processors", 0, "ids", 0], "integer"),
    "one id": ({"name": "ban", "ids": 0}, ["processors", 0, "ids"], "list"),
    "null for the ids": ({"name": "ban", "ids": None}, ["processors", 0, "ids"], "list"),
    "an object for the ids": ({"name": "ban", "ids": {}}, ["processors", 0, "ids"], "list"),
    "one list of ids for two rows": ({"name": "ban", "ids": [[0]]}, ["processors", 0, "ids"], "2"),
    "a list among ids": ({"name": "ban", "ids": [0, [1]]}, ["processors", 0, "ids", 1], "integer"),
    "an id among lists": ({"name": "ban", "ids": [[0], 1]}, ["processors", 0, "ids", 1], "list"),
    "lists of lists": ({"name": "ban", "ids": [[[0]], []]}, ["processors", 0, "ids", 0, 0], ""),
    "fewer values than ids": (
        {"name": "bias", "ids": [0, 1], "values": [1]},
        ["processors", 0],
        "same length",
    ),
    "one list of values for two of ids": (
        {"name": "bias", "ids": [[0], [1]], "values": [1, 2]},
        ["processors", 0],
        "same length",
    ),
    "a value that is null": (
        {"name": "bias", "ids": [0], "values": [None]},
        ["processors", 0, "values", 0],
        "number",
    ),
    "a value that is true": (
        {"name": "bias", "ids": [0], "values": [True]},
        ["processors", 0, "values", 0],
        "number",
    ),
    "a long list with an id past the classes": (
        {"name": "ban", "ids": LONG},
        ["processors", 0, "ids"],
        "class id 29999 is not below the 2 classes of row 1",
    ),
    "a long list with true": (
        {"name": "ban", "ids": [*LONG, True]},
        ["processors", 0, "ids", 30_000],
        "processors[0].ids[30000] is true or false",
    ),
    "a long list with a negative id": (
        {"name": "ban", "ids": [*LONG, -1]},
        ["processors", 0, "ids", 30_000],
        "0",
    ),
    "long lists with a string": (
        {"name": "ban", "ids": [[0], [*LONG, "1"]]},
        ["processors", 0, "ids"],
        "processors[0].ids should be an array",
    ),
    "a long list of values with a null": (
        {"name": "bias", "ids": LONG, "values": [0.5] * 29_999 + [None]},
        ["processors", 0, "values", 29_999],
        "number",
    ),
    "fewer values than many ids": (
        {"name": "bias", "ids": LONG, "values": [0.5] * 29_999},
        ["processors", 0],
        "same length",
    ),
    "a long name": ("x" * 100_000, ["processors", 0, "name"], "there are allow, ban"),
    "a long list for a choice": (
        {"name": "top_k", "k": 1, "ties": LONG},
        ["processors", 0, "ties"],
        "'first' or 'all'",
    ),
    "a long list for a processor": (LONG, ["processors", 0], "a name or an object"),
}


@pytest.mark.parametrize(("step", "loc", "words"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_located(step: Any, loc: Loc, words: str) -> None:
    problem = refused(step)
    assert problem["errors"][0]["loc"] == loc
    assert words in problem["detail"]
    assert problem["code"] in ("invalid_request", "invalid_parameter")


def test_the_place_in_the_chain_is_told() -> None:
    problem = refused("p_less", {"name": "top_k", "k": 1}, {"name": "top_p", "p": 2})
    assert problem["errors"][0]["loc"] == ["processors", 2, "p"]
    assert "processors[2].p" in problem["detail"]


@pytest.mark.parametrize(
    "chain",
    [None, "p_less", {}, {"name": "p_less"}, 3, True, LONG],
    ids=lambda chain: str(chain)[:9],
)
def test_processors_are_a_list(chain: Any) -> None:
    problem = refused(processors=chain)
    assert problem["errors"][0]["loc"] == ["processors"]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400"])
@pytest.mark.parametrize("case", ["temperature", "top_p", "min_p", "bias"])
def test_numbers_that_are_not_are_malformed(case: str, number: str) -> None:
    (field, value) = list(CASES[case][0].items())[-1]
    wrong = [0.125, 0.125] if isinstance(value, list) else 0.125
    step = {**named(case), field: wrong}
    body = json.dumps({"logits": ROW, "mapping": "softmax", "processors": [step]})
    response = shared_client().post("/v1/map", content=body.replace("0.125", number))
    assert response.status_code == 400
    assert response.json()["code"] == "malformed_body"


def test_the_server_lives_on_after_bad_ids() -> None:
    for ids in ([5], [2**53 - 1], [-1], [[9], [0]]):
        refused({"name": "bias", "ids": ids, "values": [1] if ids[0] != [9] else [[1], [1]]})
    assert processed(ROW, {"name": "ban", "ids": [4]}) == [shares([8, 4, 2, 1, 0])]


def test_long_lists_are_read_as_short_ones() -> None:
    classes = 60_000
    row = [0.0] * classes
    high = list(range(30_000, classes))
    asked: dict[str, Any] = {"logits": row, "mapping": "softmax"}
    two = math.log(2)
    for step, size, log in (
        ({"name": "allow", "ids": high}, 30_000, math.log(30_000)),
        ({"name": "ban", "ids": [high]}, 30_000, math.log(30_000)),
        ({"name": "bias", "ids": high, "values": [two] * 30_000}, classes, math.log(90_000)),
        (
            {"name": "bias", "ids": [high], "values": [[two] * 30_000]},
            classes,
            math.log(90_000),
        ),
        (
            {
                "name": "presence_frequency",
                "frequency": -two,
                "ids": high,
                "counts": [1] * 30_000,
            },
            classes,
            math.log(90_000),
        ),
    ):
        got = answer(**asked, processors=[step], outputs=["support_size", "normalizer"])
        assert got["support_size"] == [size]
        assert got["normalizer"] == [pytest.approx(log, abs=1e-12)]


def test_a_long_list_of_per_row_parameters_is_read_as_a_short_one() -> None:
    ks = [1 + place % 3 for place in range(30_000)]
    got = answer(
        logits=[[3, 2, 1]] * 30_000,
        mapping="softmax",
        processors=[{"name": "top_k", "k": ks}],
        outputs=["support_size"],
    )
    assert got["support_size"] == ks


def get(path: str) -> Any:
    response = shared_client().get(path)
    assert response.status_code == 200, response.text
    return response.json()


def test_every_processor_is_listed_with_its_parameters() -> None:
    listed = get("/v1/processors")["processors"]
    assert [entry["name"] for entry in listed] == list(PROCESSORS)
    for entry in listed:
        assert entry == get(f"/v1/processors/{entry['name']}")
        assert set(entry) == set(ProcessorDescription.model_fields)
        assert entry["summary"].endswith(".")
        assert entry["description"]
        fields = PROCESSORS[entry["name"]].model_fields
        assert [one["name"] for one in entry["parameters"]] == [
            name for name in fields if name != "name"
        ]
        assert all(one["description"] for one in entry["parameters"])


@pytest.mark.parametrize(
    ("processor", "name", "wanted"),
    [
        ("top_k", "k", {"type": "integer", "kind": "per_row", "minimum": 1, "required": True}),
        (
            "top_k",
            "ties",
            {"type": "string", "kind": "static", "choices": ["first", "all"], "default": "first"},
        ),
        ("top_p", "p", {"type": "number", "kind": "per_row", "minimum": 0, "maximum": 1}),
        (
            "typical",
            "mass",
            {"minimum": None, "exclusive_minimum": 0, "maximum": 1, "required": True},
        ),
        ("epsilon", "cutoff", {"minimum": 0, "maximum": None, "exclusive_maximum": 1}),
        ("temperature", "value", {"exclusive_minimum": 0, "required": True}),
        ("ban", "ids", {"type": "integer", "kind": "per_row_list", "minimum": 0}),
        ("bias", "values", {"type": "number", "kind": "per_row_list", "minimum": None}),
        ("presence_frequency", "counts", {"type": "integer", "kind": "per_row_list", "minimum": 0}),
        ("presence_frequency", "presence", {"kind": "per_row", "required": False, "default": 0}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_parameters_are_described(processor: str, name: str, wanted: dict[str, Any]) -> None:
    entries = get(f"/v1/processors/{processor}")["parameters"]
    described = next(entry for entry in entries if entry["name"] == name)
    assert {key: described[key] for key in wanted} == wanted


def test_an_unknown_processor_is_not_found() -> None:
    response = shared_client().get("/v1/processors/top_q")
    assert response.status_code == 404
    assert response.json()["code"] == "unknown_name"
    assert "top_p" in response.json()["detail"]


ROUTES = {"/v1/map": "MapBody", "/v1/sample": "SampleBody", "/v1/loss": "LossBody"}


def test_openapi_is_a_valid_document() -> None:
    found = openapi_spec_validator.OpenAPIV31SpecValidator(get("/openapi.json")).iter_errors()
    assert [str(error) for error in found] == []


@pytest.mark.parametrize(("path", "body"), ROUTES.items())
def test_openapi_documents_every_processor_on_every_route(path: str, body: str) -> None:
    document = get("/openapi.json")
    schemas = document["components"]["schemas"]
    operation = document["paths"][path]["post"]
    content = operation["requestBody"]["content"]["application/json"]
    assert content["schema"] == {"$ref": f"#/components/schemas/{body}"}
    chain = schemas[body]["properties"]["processors"]
    assert chain["maxItems"] == 32
    name, choice = chain["items"]["anyOf"]
    assert name["enum"] == list(PROCESSORS)
    assert set(choice["discriminator"]["mapping"]) == set(PROCESSORS)
    for reference in choice["discriminator"]["mapping"].values():
        assert "name" in schemas[reference.rpartition("/")[2]]["required"]
    assert {"400", "404", "408", "413", "415", "422", "default"} <= set(operation["responses"])


@pytest.mark.parametrize("path", ROUTES)
def test_the_example_of_the_documentation_is_answered_as_documented(path: str) -> None:
    document = get("/openapi.json")
    operation = document["paths"][path]["post"]
    example = operation["requestBody"]["content"]["application/json"]["example"]
    answered = answer(path, **example)
    shape = operation["responses"]["200"]["content"]["application/json"]["schema"]["$ref"]
    properties = document["components"]["schemas"][shape.rpartition("/")[2]]["properties"]
    assert set(answered) <= set(properties)


def test_openapi_documents_the_bounds_of_processors() -> None:
    schemas = get("/openapi.json")["components"]["schemas"]
    one, rows = schemas["TopP"]["properties"]["p"]["oneOf"]
    assert (one["minimum"], one["maximum"]) == (0, 1)
    assert rows["items"] == one
    flat, nested = schemas["Ban"]["properties"]["ids"]["oneOf"]
    assert flat["items"]["minimum"] == 0
    assert nested["items"] == flat
    assert {"/v1/processors", "/v1/processors/{name}"} <= set(get("/openapi.json")["paths"])
