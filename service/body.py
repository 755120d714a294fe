"""Reads a request's body into one buffer, within its limits of size and time."""

import asyncio
from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from mappings.errors import ProbmapError
from service.engine.admission import Place
from service.errors import BodyTimeout, TooLarge, UnsupportedEncoding, UnsupportedMediaType
from service.settings import Settings, flag


class UnreadBody(Exception):
    """A request was refused before its body was read to the end."""

    def __init__(self, reason: ProbmapError) -> None:
        super().__init__(reason.detail)
        self.reason = reason


async def read_body(
    scope: Scope,
    receive: Receive,
    settings: Settings,
    media_types: Collection[str] | None,
    place: Place,
) -> bytearray:
    """The whole body of a request.

    Args:
        scope: the request's.
        receive: the request's.
        settings: the limits.
        media_types: what the route reads; the first is the one assumed of a body without
            Content-Type. None: whatever the header says.
        place: the request's, which holds the body as it grows.

    Raises:
        UnreadBody: the body is of another media type, compressed, too large or too slow, or the
            server holds too much for the rest of it.
        Overloaded: the server holds too much for the body, of which nothing more is to come.
        ClientDisconnect: the client left.
    """
    try:
        body = await _read(scope, receive, settings, media_types, place)
    except ProbmapError as error:
        raise UnreadBody(error) from None
    place.hold(len(body))
    return body


async def _read(
    scope: Scope,
    receive: Receive,
    settings: Settings,
    media_types: Collection[str] | None,
    place: Place,
) -> bytearray:
    headers = Headers(scope=scope)
    if media_types is not None:
        _check_media_type(headers.get("content-type", ""), media_types)
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise UnsupportedEncoding("the body's Content-Encoding is not supported; send it as it is")
    limit = settings.max_body_bytes
    declared = headers.get("content-length", "")
    expected = int(declared[:20]) if declared.isdecimal() else 0
    if expected > limit:
        raise TooLarge.over(f"the body has {expected:,} bytes", "max_body_bytes", limit)
    body = bytearray()
    try:
        async with asyncio.timeout(settings.body_timeout_seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                body += message.get("body", b"")
                if len(body) > limit:
                    raise TooLarge.over("the body is too large", "max_body_bytes", limit)
                if not message.get("more_body", False):
                    return body
                # All of it must fit, but only what is there is held: who sends nothing takes
                # no room from others.
                place.expect(max(expected, len(body)))
                place.hold(len(body))
    except TimeoutError:
        seconds = settings.body_timeout_seconds
        raise BodyTimeout(
            f"the body did not arrive within {seconds:g} seconds "
            f"({flag('body_timeout_seconds')} of the server sets this time)"
        ) from None


def _check_media_type(header: str, media_types: Collection[str]) -> None:
    media_type, _, parameters = header.partition(";")
    if media_type and media_type.strip().lower() not in media_types:
        listed = " or ".join(media_types)
        raise UnsupportedMediaType(
            f"the body's Content-Type should be {listed} (curl sends it with --json, not with -d)"
        )
    charset = parameters.lower().partition("charset=")[2].strip(' "')
    if charset and not charset.startswith(("utf-8", "utf8")):
        raise UnsupportedMediaType("the body's charset should be utf-8")
