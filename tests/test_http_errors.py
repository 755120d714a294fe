"""What is wrong is answered as a problem document that helps and never repeats the input."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from mappings.errors import ProbmapError
from server import map_logits, shared_client
from service.app import create_app
from service.engine.engine import Engine
from service.engine.job import Job
from service.errors import STATUS
from service.settings import Settings

Loc = list[str | int]


def post(content: str | bytes, **headers: str) -> httpx.Response:
    return shared_client().post("/v1/map", content=content, headers=headers)


def assert_problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = response.json()
    assert set(problem) == {
        *("type", "title", "status", "detail", "code", "error", "request_id", "errors"),
    }
    assert (problem["status"], problem["code"]) == (status, code)
    assert problem["error"] == problem["detail"]
    assert problem["request_id"] == response.headers["x-request-id"]
    assert len(response.content) < 20_000
    return problem


LONG = ", ".join(["0.5"] * 30_000)
"""Numbers enough for an array to be parsed in pieces."""

MALFORMED = {
    "nothing": "",
    "half an object": '{"logits": [1, 2',
    "NaN": '{"logits": [NaN], "mapping": "softmax"}',
    "Infinity": '{"logits": [-Infinity, 1], "mapping": "softmax"}',
    "1e400": '{"logits": [1e400, 1], "mapping": "softmax"}',
    "an integer of 5,000 digits": '{"logits": [' + "1" * 5000 + '], "mapping": "softmax"}',
    "a number missing": '{"logits": [1,,2], "mapping": "softmax"}',
    "a trailing comma": '{"logits": [1,2,], "mapping": "softmax"}',
    "a leading zero": '{"logits": [01], "mapping": "softmax"}',
    "a byte order mark": '\ufeff{"logits": [1], "mapping": "softmax"}',
    "a lone surrogate": '{"logits": [1], "mapping": "\\ud800"}',
    "nesting 100,000 deep": "[" * 100_000 + "]" * 100_000,
    "objects 100,000 deep": '{"a":' * 100_000 + "1" + "}" * 100_000,
    "text after the end": '{"logits": [1], "mapping": "softmax"} 1',
    "long, NaN": f'{{"logits": [{LONG}, NaN], "mapping": "softmax"}}',
    "long, a number missing": f'{{"logits": [{LONG},,{LONG}], "mapping": "softmax"}}',
    "long, a trailing comma": f'{{"logits": [{LONG},], "mapping": "softmax"}}',
    "long, 1e400": f'{{"logits": [[{LONG}], [1e400]], "mapping": "softmax"}}',
    "long, a row missing": f'{{"logits": [[{LONG}],,[1]], "mapping": "softmax"}}',
    "long, a row too many": f'{{"logits": [[{LONG}],], "mapping": "softmax"}}',
    "long, no comma": f'{{"logits": [[{LONG}] [1]], "mapping": "softmax"}}',
    "long, not closed": f'{{"logits": [{LONG}',
    "long, rows not closed": f'{{"logits": [[{LONG}], [1, 2',
    "long, a key": f"{{[{LONG}]: 1}}",
    "long, two arrays": f'{{"logits": [{LONG}] [{LONG}]}}',
    "long, error elsewhere": f'{{"logits": [{LONG}], "mapping": softmax}}',
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED.keys())
def test_what_is_not_json_is_malformed(body: str) -> None:
    assert_problem(post(body.encode()), 400, "malformed_body")


def test_invalid_utf8_is_malformed() -> None:
    body = b'{"logits": [1], "mapping": "\xff\xfe"}'
    assert_problem(post(body), 400, "malformed_body")


def nested(depth: int, value: object = 1) -> object:
    """A value inside so many objects."""
    for _ in range(depth):
        value = {"a": value}
    return value


WRONG: dict[str, tuple[dict[str, Any], Loc]] = {
    "a string for a logit": ({"logits": [1, "1.5"]}, ["logits", 1]),
    "true for a logit": ({"logits": [[1, 2], [True, 2]]}, ["logits", 1, 0]),
    "an object for a logit": ({"logits": [[1], [2, {}]]}, ["logits", 1, 1]),
    "an array for a logit": ({"logits": [1, [2]]}, ["logits", 1]),
    "a number for a row": ({"logits": [[1], 2]}, ["logits", 1]),
    "rows of rows": ({"logits": [[[1]]]}, ["logits", 0, 0]),
    "a row without a class": ({"logits": [[1], []]}, ["logits", 1]),
    "rows without a class": ({"logits": [[]]}, ["logits", 0]),
    "logits as a string": ({"logits": "1, 2"}, ["logits"]),
    "logits as null": ({"logits": None}, ["logits"]),
    "a long row with a string": ({"logits": [[0.5] * 50_000, ["1"]]}, ["logits"]),
    "a long row with false": ({"logits": [0.5] * 50_000 + [False]}, ["logits", 50_000]),
    "a long second row with true": (
        {"logits": [[0.5] * 9, [0.25] * 90_000 + [True]]},
        ["logits", 1, 90_000],
    ),
    "many rows, true in one": ({"logits": [[0.5, 1]] * 9000 + [[1, True]]}, ["logits", 9000, 1]),
    "no mapping": ({"mapping": None}, ["mapping"]),
    "a mapping that is a number": ({"mapping": 3}, ["mapping"]),
    "a mapping without a name": ({"mapping": {"alpha": 2}}, ["mapping", "name"]),
    "alpha as a string": ({"mapping": {"name": "entmax", "alpha": "1.5"}}, ["mapping", "alpha"]),
    "alpha as true": ({"mapping": {"name": "entmax", "alpha": True}}, ["mapping", "alpha"]),
    "alpha as null": ({"mapping": {"name": "entmax", "alpha": None}}, ["mapping", "alpha"]),
    "alpha too large": ({"mapping": {"name": "entmax", "alpha": 17}}, ["mapping", "alpha"]),
    "one alpha too large": (
        {"logits": [[1], [2]], "mapping": {"name": "entmax", "alpha": [2, 17]}},
        ["mapping", "alpha", 1],
    ),
    "one alpha true": (
        {"logits": [[1], [2]], "mapping": {"name": "entmax", "alpha": [2, True]}},
        ["mapping", "alpha", 1],
    ),
    "alpha beside, too large": ({"mapping": "entmax", "alpha": [17]}, ["alpha", 0]),
    "three alphas for one row": (
        {"mapping": {"name": "entmax", "alpha": [1, 2, 3]}},
        ["mapping", "alpha"],
    ),
    "alpha twice": ({"mapping": {"name": "entmax", "alpha": 2, "α": 2}}, ["mapping", "alpha"]),
    "a negative temperature": (
        {"mapping": {"name": "softmax", "temperature": -1}},
        ["mapping", "temperature"],
    ),
    "temperature 0 where it has no limit": (
        {"mapping": {"name": "spherical_softmax", "temperature": 0}},
        ["mapping", "temperature"],
    ),
    "k = 0": ({"mapping": {"name": "sparse_softmax", "k": 0}}, ["mapping", "k"]),
    "k = −1": ({"mapping": {"name": "sparse_softmax", "k": -1}}, ["mapping", "k"]),
    "k = 1.5": ({"mapping": {"name": "sparse_softmax", "k": 1.5}}, ["mapping", "k"]),
    "p = 1.5": ({"mapping": {"name": "sparse_softmax", "p": 1.5}}, ["mapping", "p"]),
    "an odd order": ({"mapping": {"name": "taylor_softmax", "order": 3}}, ["mapping", "order"]),
    "an unknown function": (
        {"mapping": {"name": "normalized", "function": "cube"}},
        ["mapping", "function"],
    ),
    "a required field missing": ({"mapping": "gumbel_softmax"}, ["seed"]),
    "a negative seed": ({"mapping": "gumbel_softmax", "seed": -1}, ["seed"]),
    "a seed of 65 bits": ({"mapping": "gumbel_softmax", "seed": 2**64}, ["seed"]),
    "a negative weight": (
        {"mapping": {"name": "weighted_softmax", "weights": [-1, 1]}},
        ["mapping", "weights"],
    ),
    "a target past the classes": (
        {"mapping": {"name": "margin_softmax", "target": 2}},
        ["mapping", "target"],
    ),
    "a target past the classes, beside": ({"mapping": "margin_softmax", "target": 2}, ["target"]),
    "too few weights": (
        {"mapping": {"name": "weighted_softmax", "weights": [1]}},
        ["mapping", "weights"],
    ),
    "too many weights, a long list": (
        {"mapping": {"name": "weighted_softmax", "weights": [0.5] * 50_000}},
        ["mapping", "weights"],
    ),
    "a long list of weights, one negative": (
        {
            "logits": [0.5] * 50_000,
            "mapping": {"name": "weighted_softmax", "weights": [0.5] * 49_999 + [-0.5]},
        },
        ["mapping", "weights"],
    ),
    "a long list for alpha": (
        {"mapping": {"name": "entmax", "alpha": [0.5] * 50_000}},
        ["mapping", "alpha"],
    ),
    "long rows for alpha": (
        {"mapping": {"name": "entmax", "alpha": [[0.5] * 50_000]}},
        ["mapping", "alpha"],
    ),
    "one of many alphas null": (
        {
            "logits": [[0.5]] * 30_000,
            "mapping": {"name": "entmax", "alpha": [0.5] * 29_999 + [None]},
        },
        ["mapping", "alpha", 29_999],
    ),
    "a long list for a function": (
        {"mapping": {"name": "normalized", "function": [0.5] * 50_000}},
        ["mapping", "function"],
    ),
    "a long list for a mapping": ({"mapping": [0.5] * 50_000}, ["mapping"]),
    "a long list for outputs": ({"outputs": [0.5] * 50_000}, ["outputs"]),
    "a long list for an unknown field": ({"biases": [0.5] * 50_000}, ["biases"]),
    "tokens, which need a seed": ({"outputs": ["tokens"]}, ["outputs", 0]),
    "a field of no mapping": (
        {"mapping": {"name": "entmax", "alpah": 2}},
        ["mapping", "alpah"],
    ),
    "a field of another mapping": ({"mapping": "softmax", "alpha": 2}, ["alpha"]),
    "an unknown field": ({"logit_bias": {}}, ["logit_bias"]),
    "a deep unknown field": ({"nested": nested(400)}, ["nested"]),
    "a deep alpha": ({"mapping": {"name": "entmax", "alpha": nested(400)}}, ["mapping", "alpha"]),
    "a long array, deep": ({"nested": nested(400, [0.5] * 50_000)}, ["nested"]),
    "fields beside an object": ({"mapping": {"name": "entmax"}, "alpha": 2}, ["alpha"]),
    "an unknown output": ({"outputs": ["probabilites"]}, ["outputs", 0]),
    "no outputs": ({"outputs": []}, ["outputs"]),
    "outputs as a string": ({"outputs": "support"}, ["outputs"]),
    "a support limit of 0": ({"support_limit": 0}, ["support_limit"]),
    "a support limit of 1.5": ({"support_limit": 1.5}, ["support_limit"]),
    "a support limit that is a string": ({"support_limit": "3"}, ["support_limit"]),
    "unknown treatment of rows": ({"invalid_rows": "ignore"}, ["invalid_rows"]),
    "float16 answers": ({"dtype": "float16"}, ["dtype"]),
}


@pytest.mark.parametrize(("fields", "loc"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_located(fields: dict[str, Any], loc: Loc) -> None:
    response = map_logits(**{"logits": [1, 2], "mapping": "softmax", **fields})
    assert response.status_code == 422, response.text
    problem = assert_problem(response, 422, response.json()["code"])
    assert problem["code"] in ("invalid_request", "invalid_parameter")
    assert problem["errors"][0]["loc"] == loc
    assert problem["errors"][0]["message"]


def test_a_mapping_that_is_missing_is_asked_for() -> None:
    problem = assert_problem(map_logits(logits=[1]), 422, "invalid_request")
    assert "softmax" in problem["detail"]


def test_a_body_that_is_no_object_is_refused() -> None:
    assert_problem(post("[1, 2]"), 422, "invalid_request")


def test_an_unknown_field_is_answered_with_what_was_meant() -> None:
    fields = {"name": "entmax", "temprature": 2}
    detail = map_logits(logits=[1], mapping=fields).json()["detail"]
    assert "did you mean temperature?" in detail
    assert "alpha" in detail


def test_an_unknown_mapping_is_not_found_and_the_known_ones_are_listed() -> None:
    for mapping in ("entmx", {"name": "entmx"}):
        problem = assert_problem(map_logits(logits=[1], mapping=mapping), 404, "unknown_name")
        assert "entmax" in problem["detail"]


def test_a_row_without_an_answer_is_named() -> None:
    response = map_logits(logits=[[1, 2], [None, None]], mapping="softmax")
    problem = assert_problem(response, 422, "invalid_row")
    assert problem["errors"] == [
        {"loc": ["logits", 1], "message": "row 1: no unmasked class"},
    ]
    assert "row 1" in problem["detail"]


SECRET = "hunter2-do-not-repeat"


@pytest.mark.parametrize(
    "fields",
    [
        {"logits": [SECRET]},
        {"logits": SECRET},
        {"mapping": {"name": "entmax", "alpha": SECRET}},
        {"mapping": {"name": "normalized", "function": SECRET}},
        {"outputs": [SECRET]},
        {"dtype": SECRET},
        {"support_limit": {SECRET: SECRET}},
    ],
    ids=str,
)
def test_the_input_is_not_echoed(fields: dict[str, Any]) -> None:
    response = map_logits(**{"logits": [1], "mapping": "softmax", **fields})
    assert response.status_code == 422
    assert SECRET not in response.text


@pytest.mark.parametrize(
    "fields",
    [
        {"logits": [["x"] * 100_000]},
        {"logits": ["x" * 10_000_000]},
        {"logits": [[1]] * 40_000, "mapping": {"name": "entmax", "alpha": ["x"] * 40_000}},
        {"logits": [[1]] * 40_000, "mapping": {"name": "entmax", "alpha": [99.5] * 40_000}},
        {"logits": [[None]] * 40_000},
        {"outputs": ["x"] * 100_000},
        {"x" * 1_000_000: 1},
        {f"field {index}": 1 for index in range(50_000)},
        {"mapping": "x" * 1_000_000},
    ],
    ids=[
        "strings",
        "a long string",
        "strings for alphas",
        "alphas too large",
        "masked rows",
        "outputs",
        "a long name",
        "many names",
        "a long mapping",
    ],
)
def test_the_error_of_a_large_body_is_small(fields: dict[str, Any]) -> None:
    response = map_logits(**{"logits": [1], "mapping": "softmax", **fields})
    assert response.status_code in (404, 413, 422), response.text
    problem = assert_problem(response, response.status_code, response.json()["code"])
    assert len(problem["errors"]) <= 10


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"content-type": "text/plain"}, "unsupported_media_type"),
        ({"content-type": "application/x-www-form-urlencoded"}, "unsupported_media_type"),
        ({"content-type": "application/json; charset=latin-1"}, "unsupported_media_type"),
        ({"content-encoding": "br"}, "unsupported_encoding"),
        ({"content-encoding": "gzip, gzip"}, "unsupported_encoding"),
    ],
    ids=str,
)
def test_other_media_types_and_encodings_are_refused(headers: dict[str, str], code: str) -> None:
    response = post('{"logits": [1], "mapping": "softmax"}', **headers)
    assert_problem(response, 415, code)


@pytest.mark.parametrize("path", ["/nope", "/v1/map/", "/v1", "/docs/../../etc/passwd", "/%0a"])
def test_an_unknown_route_is_not_found(path: str) -> None:
    assert_problem(shared_client().get(path), 404, "not_found")


def test_another_method_is_refused_with_those_allowed() -> None:
    response = shared_client().get("/v1/map")
    assert_problem(response, 405, "method_not_allowed")
    assert response.headers["allow"] == "POST"


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("abc-123", True),
        ("x" * 128, True),
        ("x" * 129, False),
        ("two words", False),
        ("", False),
        ("tab\there", False),
    ],
)
def test_a_request_id_is_taken_or_made(given: str, taken: bool) -> None:
    for path in ("/health", "/nope"):
        answered = shared_client().get(path, headers={"x-request-id": given})
        request_id = answered.headers["x-request-id"]
        assert (request_id == given) is taken
        assert 0 < len(request_id) <= 128


def kinds(error: type[ProbmapError]) -> list[type[ProbmapError]]:
    return [error, *(kind for child in error.__subclasses__() for kind in kinds(child))]


def test_every_error_has_a_status() -> None:
    assert {kind.code for kind in kinds(ProbmapError)} - {ProbmapError.code} == set(STATUS)


def test_an_unexpected_failure_tells_its_request_id_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(engine: Engine, job: Job) -> None:
        if job.rows == 2:
            raise RuntimeError(SECRET)

    monkeypatch.setattr(Engine, "submit", fail)

    async def post_to_a_failing_engine() -> httpx.Response:
        app = create_app(Settings())
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                body = {"logits": [[1], [2]], "mapping": "softmax"}
                return await client.post("/v1/map", json=body, headers={"x-request-id": "abc"})

    problem = assert_problem(asyncio.run(post_to_a_failing_engine()), 500, "internal_error")
    assert problem["request_id"] == "abc"
    assert SECRET not in json.dumps(problem)
    logged = [record for record in caplog.records if record.levelname == "ERROR"]
    assert ["abc" in record.getMessage() for record in logged] == [True]
    assert SECRET in caplog.text
