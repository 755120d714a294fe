"""/openapi.json tells the truth: requests are answered as it says, and none with a 500."""

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import APIOperation, Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from server import shared_server
from service.app import create_app
from service.settings import Settings

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]

JSON = "application/json"

SECONDS = 20.0
"""No answer may take longer."""

EXAMPLES = {"POST": 40, "GET": 10}
"""How many requests each operation gets, of each kind (a count)."""

KNOWN = {"name": "sparsemax", "version": "1"}
"""Path parameters that reach what is behind them; others are answered 404."""

SCHEMA = schemathesis.openapi.from_dict(create_app(Settings()).openapi())
OPERATIONS: dict[str, APIOperation[Any, Any, Any, Any]] = {
    found.ok().label: found.ok() for found in SCHEMA.get_all_operations() if isinstance(found, Ok)
}


def media_types(operation: APIOperation[Any, Any, Any, Any]) -> set[str]:
    """What an operation reads."""
    return set(operation.definition.raw.get("requestBody", {}).get("content", {}))


READING = [label for label, operation in OPERATIONS.items() if JSON in media_types(operation)]
"""The operations that read JSON."""

WITHOUT_BODY = [label for label, operation in OPERATIONS.items() if not media_types(operation)]


def parameters(label: str) -> dict[str, Any] | None:
    """Path parameters for an operation under a mapping's name."""
    return KNOWN if "{name}" in label and "region" not in label else None


def assert_documented(case: Case[Any]) -> int:
    """Asks, and compares the answer with what is documented; returns its status."""
    response = case.call_and_validate(base_url=shared_server().url, checks=CHECKS, timeout=SECONDS)
    return int(response.status_code)


def assert_all_documented(label: str, mode: GenerationMode) -> None:
    """Asks what is generated for one operation."""
    operation = OPERATIONS[label]
    strategy = operation.as_strategy(mode, path_parameters=parameters(label))

    @settings(
        max_examples=EXAMPLES[operation.method.upper()],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    @given(strategy)
    def ask(case: Case[Any]) -> None:
        assert_documented(case)

    ask()


@pytest.mark.parametrize("label", READING)
@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_generated_bodies_are_answered_as_documented(label: str, mode: GenerationMode) -> None:
    assert_all_documented(label, mode)


@pytest.mark.parametrize("label", WITHOUT_BODY)
def test_generated_requests_are_answered_as_documented(label: str) -> None:
    assert_all_documented(label, GenerationMode.POSITIVE)


LOGITS = [[0, 0.25, 0.5], [1, None, 3], [2, 2, 2]]
DENSE = ["probabilities", "log_probabilities", "support", "normalizer", "entropy", "support_size"]
SLOPES = ["jacobian", "parameter_gradients"]

FULL: dict[str, tuple[str, dict[str, Any]]] = {
    "every output of map": ("POST /v1/map", {"outputs": [*DENSE, *SLOPES]}),
    "no row": ("POST /v1/map", {"outputs": [*DENSE, *SLOPES], "logits": []}),
    "rows without an answer": (
        "POST /v1/map",
        {"outputs": [*DENSE, *SLOPES], "logits": [[None], [1]], "invalid_rows": "report"},
    ),
    "a support that is cut": ("POST /v1/map", {"outputs": ["support"], "support_limit": 1}),
    "blocks": ("POST /v1/map", {"jacobian": {"form": "support"}}),
    "factors": ("POST /v1/map", {"jacobian": {"form": "factors"}}),
    "a product": (
        "POST /v1/map",
        {"jacobian": {"form": "jvp", "vector": [[1, 0, 0], [0, 1, 0], [0, 0, 1]]}},
    ),
    "a normalizer that is not there": (
        "POST /v1/map",
        {"mapping": "spherical_softmax", "outputs": ["normalizer"]},
    ),
    "every output of sample": (
        "POST /v1/sample",
        {"outputs": ["tokens", "token_log_probabilities", *DENSE, *SLOPES], "seed": [1, 2, 3]},
    ),
    "tokens of rows without an answer": (
        "POST /v1/sample",
        {"logits": [[None], [1]], "invalid_rows": "report"},
    ),
    "every output of loss": (
        "POST /v1/loss",
        {"outputs": ["loss", "gradient", *DENSE, *SLOPES], "targets": [0, 2, 1]},
    ),
    "a loss that is infinite": (
        "POST /v1/loss",
        {"logits": [0, 9], "mapping": "t_softmax", "targets": [0]},
    ),
    "losses of rows without an answer": (
        "POST /v1/loss",
        {"logits": [[None], [1]], "invalid_rows": "report", "targets": [0, 0]},
    ),
}


@pytest.mark.parametrize(("label", "fields"), FULL.values(), ids=FULL.keys())
def test_full_answers_are_as_documented(label: str, fields: dict[str, Any]) -> None:
    document = {"logits": LOGITS, "mapping": "entmax", **fields}
    assert assert_documented(OPERATIONS[label].Case(body=document, media_type=JSON)) == 200


@pytest.mark.parametrize("path", ["/v1/map", "/v1/sample", "/v1/loss"])
def test_the_documented_example_is_answered_as_documented(path: str) -> None:
    operation = OPERATIONS[f"POST {path}"]
    example = operation.definition.raw["requestBody"]["content"][JSON]["example"]
    assert assert_documented(operation.Case(body=example, media_type=JSON)) == 200


def test_every_operation_can_be_read_from_the_document() -> None:
    assert all(isinstance(found, Ok) for found in SCHEMA.get_all_operations())
    assert {f"POST /v1/{name}" for name in ("map", "sample", "loss")} <= set(READING)
    others = set(OPERATIONS) - {*READING, *WITHOUT_BODY}
    assert others <= {"POST /v1/stream"}, "what speaks JSON is asked"
