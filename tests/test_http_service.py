"""The service describes itself: mappings, health, documentation."""

import re
from typing import Any

import httpx
import pytest

from mappings.registry import MAPPINGS
from server import map_logits, running_server, shared_client


def get(path: str) -> Any:
    response = shared_client().get(path)
    assert response.status_code == 200, response.text
    return response.json()


def parameter(mapping: str, name: str) -> dict[str, Any]:
    found = {entry["name"]: entry for entry in get(f"/v1/mappings/{mapping}")["parameters"]}
    described: dict[str, Any] = found[name]
    return described


def test_every_mapping_is_listed() -> None:
    listed = get("/v1/mappings")["mappings"]
    assert [entry["name"] for entry in listed] == list(MAPPINGS)
    for entry in listed:
        assert entry == get(f"/v1/mappings/{entry['name']}")
        assert entry["summary"].endswith(".")
        assert entry["description"]
        assert all(described["description"] for described in entry["parameters"])
        names = [described["name"] for described in entry["parameters"]]
        assert names == [name for name in MAPPINGS[entry["name"]].model_fields if name != "name"]


def test_properties_are_told() -> None:
    assert get("/v1/mappings/sparsemax")["sparse"] is True
    assert get("/v1/mappings/softmax")["sparse"] is False
    assert get("/v1/mappings/spherical_softmax")["shift_invariant"] is False
    assert get("/v1/mappings/spherical_softmax")["monotone"] is False


@pytest.mark.parametrize(
    ("mapping", "name", "wanted"),
    [
        (
            "entmax",
            "alpha",
            {
                "type": "number",
                "kind": "per_row",
                "required": False,
                "default": 1.5,
                "minimum": 0.1,
                "maximum": 16,
            },
        ),
        ("softmax", "temperature", {"default": 1, "minimum": 0, "exclusive_minimum": None}),
        ("spherical_softmax", "temperature", {"exclusive_minimum": 0}),
        ("sparse_softmax", "k", {"type": "integer", "minimum": 1, "default": None}),
        ("sparse_softmax", "p", {"type": "number", "minimum": 0, "maximum": 1}),
        (
            "normalized",
            "function",
            {"type": "string", "kind": "static", "choices": ["sigmoid", "softplus", "square"]},
        ),
        ("gumbel_softmax", "seed", {"type": "integer", "required": True, "kind": "per_row"}),
        ("gumbel_softmax", "hard", {"type": "boolean", "kind": "static", "default": False}),
        ("weighted_softmax", "weights", {"type": "number", "kind": "per_class", "required": True}),
    ],
    ids=str,
)
def test_parameters_are_described(mapping: str, name: str, wanted: dict[str, Any]) -> None:
    described = parameter(mapping, name)
    assert {key: described[key] for key in wanted} == wanted


def test_an_unknown_mapping_is_not_found() -> None:
    response = shared_client().get("/v1/mappings/softmin")
    assert response.status_code == 404
    assert response.json()["code"] == "unknown_name"


def test_health_is_told() -> None:
    assert get("/health") == get("/v2/health/live") == {"live": True}
    assert get("/v2/health/ready") == {"ready": True}


def test_the_documentation_needs_no_other_site() -> None:
    page = shared_client().get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "http://" not in page.text
    assert "https://" not in page.text
    for asset in ("swagger-ui-bundle.js", "swagger-ui.css", "favicon.png"):
        assert f"/docs/{asset}" in page.text
        assert shared_client().get(f"/docs/{asset}").status_code == 200
    assert shared_client().get("/docs/__init__.py").status_code == 404


def test_openapi_documents_every_mapping_with_its_bounds() -> None:
    document = get("/openapi.json")
    schemas = document["components"]["schemas"]
    name, choice = schemas["MapBody"]["properties"]["mapping"]["anyOf"]
    assert name["enum"] == list(MAPPINGS)
    assert set(choice["discriminator"]["mapping"]) == set(MAPPINGS)
    assert schemas["Entmax"]["properties"]["alpha"]["oneOf"][0] == {
        "type": "number",
        "minimum": 0.1,
        "maximum": 16,
    }
    assert "name" in schemas["Entmax"]["required"]
    assert set(schemas["MapBody"]["required"]) == {"mapping", "logits"}


def test_openapi_refers_to_nothing_that_is_missing() -> None:
    document = get("/openapi.json")

    def references(node: Any) -> list[str]:
        if isinstance(node, dict):
            own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
            return own + [found for value in node.values() for found in references(value)]
        if isinstance(node, list):
            return [found for value in node for found in references(value)]
        return []

    found = set(references(document))
    assert found
    for reference in found:
        assert reference.removeprefix("#/components/schemas/") in document["components"]["schemas"]


def test_openapi_documents_the_problems_of_a_route() -> None:
    responses = get("/openapi.json")["paths"]["/v1/map"]["post"]["responses"]
    assert {"200", "400", "404", "408", "413", "415", "422", "default"} <= set(responses)
    assert "application/problem+json" in responses["422"]["content"]


def test_the_example_of_the_documentation_is_answered() -> None:
    post = get("/openapi.json")["paths"]["/v1/map"]["post"]
    example = post["requestBody"]["content"]["application/json"]["example"]
    assert map_logits(example).status_code == 200


@pytest.mark.parametrize("path", ["/health", "/v2/health/ready", "/v1/mappings", "/metrics", "/v2"])
def test_whoever_asks_for_the_head_alone_gets_it(path: str) -> None:
    response = shared_client().head(path)
    whole = shared_client().get(path)
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["content-type"] == whole.headers["content-type"]


def test_the_head_of_what_is_not_there_is_an_error() -> None:
    assert shared_client().head("/nowhere").status_code == 404
    assert shared_client().head("/v1/map").status_code == 405


WATCHED = """
import atexit, gc
from service.command import main
atexit.register(lambda: print("objects", gc.get_freeze_count(), len(gc.get_objects())))
main()
"""
"""The command line, which says at its end how many objects garbage is not looked for among, and
among how many it is."""


def test_garbage_is_not_looked_for_among_what_was_imported() -> None:
    # Through hundreds of thousands of objects that takes a tenth of a second, in which nobody is
    # answered.
    with running_server(program=("-c", WATCHED)) as server:
        assert (
            httpx.post(
                f"{server.url}/v1/map", json={"logits": [0, 1], "mapping": "softmax"}
            ).status_code
            == 200
        )
        server.stop()
        found = re.search(r"objects (\d+) (\d+)", server.output)
    assert found is not None, server.output
    frozen, others = map(int, found.groups())
    assert frozen > 100_000 > 2 * others
