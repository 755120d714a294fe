"""The body's format is named by Content-Type, the answer's by Accept; neither binds the other."""

import pytest

from safetensors_bodies import MEDIA_TYPE, answered, body, post_binary, random_logits
from server import shared_client
from service.wire.negotiation import accepted
from test_http_errors import assert_problem

JSON = "application/json"

CHOICES = [
    # Accept, the answer to a JSON body, the answer to a safetensors body
    ("", JSON, MEDIA_TYPE),
    ("*/*", JSON, MEDIA_TYPE),
    ("application/*", JSON, MEDIA_TYPE),
    (" , ", JSON, MEDIA_TYPE),
    (JSON, JSON, JSON),
    (MEDIA_TYPE, MEDIA_TYPE, MEDIA_TYPE),
    (f"{JSON}, {MEDIA_TYPE}", JSON, MEDIA_TYPE),
    (f"{JSON};q=0.5, {MEDIA_TYPE};q=0.9", MEDIA_TYPE, MEDIA_TYPE),
    (f"{JSON}; q=0.9 ,{MEDIA_TYPE}; Q=0.5", JSON, JSON),
    (f"{MEDIA_TYPE};q=0.1, */*;q=0.5", JSON, JSON),
    (f"{MEDIA_TYPE};q=0, */*", JSON, JSON),
    (f"{JSON};q=0, application/*", MEDIA_TYPE, MEDIA_TYPE),
    ("application/json, text/plain, */*", JSON, JSON),
    ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", JSON, MEDIA_TYPE),
    ("APPLICATION/JSON", JSON, JSON),
    (f"{JSON};charset=utf-8", JSON, JSON),
    (f"{JSON};q=nonsense, {MEDIA_TYPE}", MEDIA_TYPE, MEDIA_TYPE),
    (f"{JSON};q=7", JSON, JSON),
    ("text/plain", None, None),
    ("text/*", None, None),
    ("*/*;q=0", None, None),
    (f"{JSON};q=0, {MEDIA_TYPE};q=0", None, None),
    ("nonsense", None, None),
]


@pytest.mark.parametrize(("accept", "of_json", "of_safetensors"), CHOICES)
def test_the_answers_format_follows_accept_and_then_the_body(
    accept: str, of_json: str | None, of_safetensors: str | None
) -> None:
    assert accepted(accept, JSON) == of_json
    assert accepted(accept, MEDIA_TYPE) == of_safetensors


def test_json_in_and_safetensors_out() -> None:
    document = {"logits": [0, 0.5, 1], "mapping": "sparsemax"}
    response = shared_client().post("/v1/map", json=document, headers={"accept": MEDIA_TYPE})
    assert answered(response)["probabilities"].tolist() == [[0.0, 0.25, 0.75]]


def test_safetensors_in_and_json_out() -> None:
    logits = random_logits(1, 3)
    logits[0] = logits.new_tensor([0, 0.5, 1])
    response = post_binary("/v1/map", body({"logits": logits}, mapping="sparsemax"), accept=JSON)
    assert response.headers["content-type"] == JSON
    assert response.json()["probabilities"] == [[0.0, 0.25, 0.75]]


def test_a_client_that_accepts_nothing_there_is_learns_what_there_is() -> None:
    for path in ("/v1/map", "/v1/sample", "/v1/loss"):
        document = {"logits": [0, 0.5, 1], "mapping": "sparsemax"}
        response = shared_client().post(path, json=document, headers={"accept": "text/csv"})
        problem = assert_problem(response, 406, "not_acceptable")
        assert JSON in problem["detail"]
        assert MEDIA_TYPE in problem["detail"]


def test_errors_are_problem_documents_whatever_is_accepted() -> None:
    response = post_binary("/v1/map", b"", accept=MEDIA_TYPE)
    assert_problem(response, 400, "malformed_body")


@pytest.mark.parametrize(
    "media_type",
    ["application/octet-stream", "application/safetensors", "application/x-pickle"],
)
def test_other_media_types_are_refused_with_those_there_are(media_type: str) -> None:
    made = body({"logits": random_logits(1, 3)}, mapping="sparsemax")
    response = post_binary("/v1/map", made, **{"content-type": media_type})
    problem = assert_problem(response, 415, "unsupported_media_type")
    assert MEDIA_TYPE in problem["detail"]


@pytest.mark.parametrize("media_type", [MEDIA_TYPE.upper(), f"{MEDIA_TYPE}; version=1"])
def test_the_media_type_may_be_written_otherwise(media_type: str) -> None:
    made = body({"logits": random_logits(1, 3)}, mapping="sparsemax")
    response = post_binary("/v1/map", made, **{"content-type": media_type})
    assert set(answered(response)) == {"probabilities"}


def test_a_safetensors_body_under_the_name_of_json_is_malformed() -> None:
    made = body({"logits": random_logits(1, 3)}, mapping="sparsemax")
    response = post_binary("/v1/map", made, **{"content-type": JSON})
    assert_problem(response, 400, "malformed_body")
