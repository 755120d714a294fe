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
    """The object that a request's body is; an empty body is an empty one.

    Raises:
        UnreadBody: the body is too large or too slow, or compressed in a coding that is not read.
        MalformedBody: it is not JSON, or no object.
        TooLarge: it is too large once it is inflated.
        ClientDisconnect: the client left.
    """
    runtime = runtime_of(request)
    try:
        permit = runtime.admission.enter()
    except ProbmapError as error:
        raise UnreadBody(error) from None
    try:
        body = await read_body(
            request.scope,
            request.receive,
            runtime.settings,
            permit,
            runtime.transcode,
            most=MAX_BYTES,
        )
    finally:
        permit.release()
    if not bytes(body).strip():
        return {}
    try:
        return object_at(orjson.loads(body), ())
    except orjson.JSONDecodeError as error:
        raise MalformedBody(f"the body is not valid JSON: {error.msg}") from None
