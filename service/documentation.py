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
from service.security import asks_for_keys, document_keys
from service.settings import Settings
from service.wire.arrow_framing import MEDIA_TYPE as ARROW
from service.wire.jsonl import MEDIA_TYPES as LINES
from service.wire.safetensors_decode import MEDIA_TYPE, REQUEST
from service.wire.safetensors_encode import ANSWER
from service.wire.safetensors_header import MAX_HEADER_BYTES

COMPONENTS = "#/components/schemas/"

DESCRIPTION = """Batched logits to probability distributions.

Every error is a problem document (RFC 9457, `application/problem+json`). Numbers in answers are
their shortest exact decimals; a number that JSON cannot hold is `null`.
"""


BINARY = {"type": "string", "format": "binary"}

REQUEST_TENSORS = f"""A tensor `logits` of F16, BF16, F32 or F64, rows × classes or one row, −inf
where a class is masked; all other fields as JSON in the metadata entry `{REQUEST}`, or as tensors
that are named like them (`targets`, `seed`, `alpha`) or like their place (`processors.0.ids`,
`jacobian.vector`). A header has at most {MAX_HEADER_BYTES:,} bytes.
"""

ANSWER_TENSORS = f"""A tensor an output, named like it, and the rest of the JSON answer in the
metadata entry `{ANSWER}`. Supports are compressed rows: row i of `support_indices` and
`support_probabilities` lies from `support_offsets[i]` up to `support_offsets[i + 1]`. Rows without
an answer are NaN, have no support and the tokens −1.
"""


def bodies(model: type[BaseModel], example: dict[str, Any]) -> dict[str, Any]:
    """The OpenAPI of a route that reads this model as JSON, or as safetensors."""
    content = {
        "application/json": {
            "schema": {"$ref": COMPONENTS + model.__name__},
            "example": example,
        },
        MEDIA_TYPE: {"schema": {**BINARY, "description": REQUEST_TENSORS}},
    }
    return {"requestBody": {"required": True, "content": content}}


def answers(*failures: int) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI of what such a route answers beside its JSON, and of its errors."""
    content = {MEDIA_TYPE: {"schema": {**BINARY, "description": ANSWER_TENSORS}}}
    return {200: {"content": content}, **problems(HTTPStatus.NOT_ACCEPTABLE, *failures)}


TEXT = {"schema": {"type": "string"}}

STREAM_BODY: dict[str, Any] = {
    "parameters": [
        {
            "name": "order",
            "in": "query",
            "description": "Whether answers come in the order of the requests or as they are done; "
            "Arrow batches only in order.",
            "schema": {"type": "string", "enum": ["input", "completion"], "default": "input"},
        },
        {
            "name": "mapping",
            "in": "query",
            "description": "Of Arrow batches only: the mapping's name. Other request fields may "
            "stand in the query beside it, as JSON or as plain text.",
            "schema": {"type": "string"},
        },
    ],
    "requestBody": {
        "description": "A request a line: the fields of one of /v1/map, or of another by `op`. Or "
        "Arrow record batches with the column `logits`, and columns of per-row fields; the other "
        "fields are JSON in the schema's metadata `probmap`.",
        "content": {**dict.fromkeys(LINES, TEXT), ARROW: {"schema": BINARY}},
    },
}
"""The OpenAPI of what a stream takes."""


def stream_answers(*failures: int) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI of what a stream answers, and of its errors."""
    content = dict.fromkeys((LINES[0], "text/event-stream"), TEXT)
    return {200: {"content": {**content, ARROW: {"schema": BINARY}}}, **problems(*failures)}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI of the errors a route answers with."""
    content = {"application/problem+json": {"schema": {"$ref": f"{COMPONENTS}ProblemDocument"}}}
    documented: dict[int | str, dict[str, Any]] = {
        status: {"description": HTTPStatus(status).phrase, "content": content}
        for status in statuses
    }
    documented["default"] = {"description": "Any other error", "content": content}
    return documented


def document(app: FastAPI, settings: Settings) -> dict[str, Any]:
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
        if asks_for_keys(settings):
            document_keys(made, settings)
        app.openapi_schema = made
    return app.openapi_schema
