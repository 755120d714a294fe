"""The one line that every JSON endpoint takes: decode, submit, encode."""

from functools import partial

from fastapi import Request, Response

from schemas.request import Request as Asked
from service.body import read_body
from service.responses import evaluated
from service.runtime import runtime_of
from service.wire.json_decode import MEDIA_TYPES, decode
from service.wire.json_encode import answer_bytes, encode


async def evaluate(request: Request, model: type[Asked]) -> Response:
    """Answers a request whose body is of this model."""
    runtime = runtime_of(request)
    settings = runtime.settings
    body = await read_body(request.scope, request.receive, settings, MEDIA_TYPES)
    job = await runtime.transcode(len(body), partial(decode, body, model, settings))
    completed = await runtime.engine.submit(job)
    written = partial(encode, job, completed.evaluation, settings)
    parts = await runtime.transcode(answer_bytes(completed.evaluation), written)
    return evaluated(parts, completed)
