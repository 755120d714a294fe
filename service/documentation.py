"""OpenAPI: the document, and what routes add to it for bodies that they read themselves."""

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from mappings.registry import MAPPINGS, PROCESSORS
from schemas.problem import ProblemDocument
from schemas.request import LossBody, MapBody, SampleBody

COMPONENTS = "#/components/schemas/"

DESCRIPTION = """Batched logits to probability distributions.

Every error is a problem document (RFC 9457, `application/problem+json`). Numbers in answers are
their shortest exact decimals; a number that JSON cannot hold is `null`.
"""


def json_body(model: type[BaseModel], example: dict[str, Any]) -> dict[str, Any]:
    """The OpenAPI of a route that reads a JSON body of this model."""
    content = {"schema": {"$ref": COMPONENTS + model.__name__}, "example": example}
    return {"requestBody": {"required": True, "content": {"application/json": content}}}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI of the errors a route answers with."""
    content = {"application/problem+json": {"schema": {"$ref": f"{COMPONENTS}ProblemDocument"}}}
    documented: dict[int | str, dict[str, Any]] = {
        status: {"description": HTTPStatus(status).phrase, "content": content}
        for status in statuses
    }
    documented["default"] = {"description": "Any other error", "content": content}
    return documented


def document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document of an application, made once."""
    if app.openapi_schema is None:
        made = get_openapi(
            title=app.title,
            version=app.version,
            description=DESCRIPTION,
            routes=app.routes,
        )
        _, definitions = models_json_schema(
            [
                (MapBody, "validation"),
                (SampleBody, "validation"),
                (LossBody, "validation"),
                (ProblemDocument, "serialization"),
            ],
            ref_template=f"{COMPONENTS}{{model}}",
        )
        for named in (*MAPPINGS.values(), *PROCESSORS.values()):
            definitions["$defs"][named.__name__].setdefault("required", []).insert(0, "name")
        made.setdefault("components", {}).setdefault("schemas", {}).update(definitions["$defs"])
        app.openapi_schema = made
    return app.openapi_schema
