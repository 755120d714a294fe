"""POST /v1/map: logits to distributions."""

from functools import partial

from fastapi import APIRouter, Request, Response

from schemas.answer import MapAnswer
from schemas.request import MapBody, MapRequest
from service.body import read_body
from service.documentation import json_body, problems
from service.responses import evaluated
from service.runtime import runtime_of
from service.wire import json

router = APIRouter(tags=["distributions"])

EXAMPLE = {
    "logits": [[0, 0.25, 0.5], [1, None, 3]],
    "mapping": {"name": "entmax", "alpha": [1.5, 2], "temperature": 0.7},
    "outputs": ["probabilities", "support"],
}


@router.post(
    "/v1/map",
    response_model=MapAnswer,
    responses=problems(400, 404, 408, 413, 415, 422),
    openapi_extra=json_body(MapBody, EXAMPLE),
)
async def map_logits(request: Request) -> Response:
    """Maps every row of logits to a probability distribution."""
    runtime = runtime_of(request)
    settings = runtime.settings
    body = await read_body(request.scope, request.receive, settings, json.MEDIA_TYPES)
    job = await runtime.transcode(len(body), partial(json.decode, body, MapRequest, settings))
    completed = await runtime.engine.submit(job)
    encode = partial(json.encode, job, completed.evaluation, settings)
    parts = await runtime.transcode(json.answer_bytes(completed.evaluation), encode)
    return evaluated(parts, completed)
