"""The small JSON bodies of the Open Inference Protocol's administrative requests."""

from typing import Any

import orjson
from fastapi import Request

from mappings.errors import ProbmapError
from service.body import UnreadBody, read_body
from service.errors import MalformedBody
from service.runtime import runtime_of
from service.wire.oip_fields import object_at

MAX_BYTES = 64 << 10
"""The longest of them (bytes)."""


async def small_object(request: Request) -> dict[str, Any]:
    """The object that a request's body is; an empty body is an empty one."""
    runtime = runtime_of(request)
    try:
        permit = runtime.admission.enter()
    except ProbmapError as error:
        raise UnreadBody(error) from None
    try:
        limits = runtime.settings.model_copy(update={"max_body_bytes": MAX_BYTES})
        body = await read_body(
            request.scope, request.receive, limits, None, permit, runtime.transcode
        )
    finally:
        permit.release()
    if not body.strip():
        return {}
    try:
        return object_at(orjson.loads(body), ())
    except orjson.JSONDecodeError as error:
        raise MalformedBody(f"the body is not valid JSON: {error.msg}") from None
