"""Reads a request's body into one buffer, inflated, within its limits of size and time."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from starlette.datastructures import Headers
from starlette.types import Receive, Scope

from mappings.errors import ProbmapError
from service.arriving_body import ArrivingBody, BodyLimit
from service.content_encoding import Inflation, coding_of
from service.engine.admission import Permit
from service.errors import UnsupportedMediaType
from service.rooms import Rooms
from service.settings import Settings
from service.wire.exchange import Body
from service.wire.oip_header import HEADER, tensors_start

ALIGNMENT = 16
"""What the address of a large buffer is a multiple of (bytes); enough for any number."""

FIRST_BYTES = 16 << 10
"""The most of a compressed body that is inflated on the event loop (bytes)."""

STEP_BYTES = 1 << 20
"""The most that is inflated between two looks at the limits (bytes)."""

Transcode = Callable[[int, Callable[[], bytes]], Awaitable[bytes]]
"""Runs what takes about so many bytes' time, off the event loop when that is long."""


class UnreadBody(Exception):
    """A request was refused before its body was read to the end."""

    def __init__(self, reason: ProbmapError) -> None:
        super().__init__(reason.detail)
        self.reason = reason


async def read_body(
    scope: Scope,
    receive: Receive,
    settings: Settings,
    permit: Permit,
    transcode: Transcode,
    *,
    media_types: Sequence[str] | None = None,
    most: int | None = None,
    rooms: Rooms | None = None,
) -> Body:
    """The whole body of a request, inflated if it was compressed.

    Args:
        scope: the request's.
        receive: the request's.
        settings: the limits.
        permit: the request's, which holds the body as it grows.
        transcode: where to inflate.
        media_types: what the route reads; the first is the one assumed of a body without
            Content-Type. None: whatever the header says.
        most: what the route reads (bytes), where that is not max_body_bytes.
        rooms: where a large body may be; None: in a bytearray of its own.

    Raises:
        UnreadBody: the body is of another media type or coding, too large or too slow, or the
            server holds too much for the rest of it.
        Overloaded: the server holds too much for the body, of which nothing more is to come.
        MalformedBody: the body is not compressed as its Content-Encoding says.
        TooLarge: the body is too large once it is inflated.
        ClientDisconnect: the client left.
    """
    headers = Headers(scope=scope)
    limit = BodyLimit.of(settings)
    if most is not None:
        limit = BodyLimit(most, f"this path reads {most:,} bytes")
    lead = -tensors_start(headers.get(HEADER, ""), ALIGNMENT) % ALIGNMENT
    try:
        if media_types is not None:
            check_media_type(headers.get("content-type", ""), media_types)
        coding = coding_of(",".join(headers.getlist("content-encoding")))
        arriving = ArrivingBody(scope, receive, limit, permit, 0 if coding else lead)
        if rooms is not None and coding is None:
            arriving.rooms = rooms
        body = await arriving.whole(settings.body_timeout_seconds)
    except ProbmapError as error:
        raise UnreadBody(error) from None
    if coding is not None:
        assert isinstance(body, bytearray)
        source, body = body, bytearray(lead)
        await _inflate(body, Inflation(coding, source), len(source), limit, permit, transcode)
    permit.hold(len(body) - lead)
    if isinstance(body, memoryview):
        return body[lead:]
    # Moves no byte: a bytearray that loses its first bytes starts later.
    del body[:lead]
    return body


async def _inflate(
    body: bytearray,
    inflation: Inflation,
    source_bytes: int,
    limit: BodyLimit,
    permit: Permit,
    transcode: Transcode,
) -> None:
    """Appends what was compressed to `body`, a little at a time: a few bytes can become many."""
    lead = len(body)
    step = FIRST_BYTES
    while not inflation.is_over:
        body += await transcode(step, partial(inflation.step, step))
        limit.check(len(body) - lead, "the body is too large once inflated")
        permit.hold(source_bytes + len(body) - lead)
        step = STEP_BYTES


def check_media_type(header: str, media_types: Sequence[str]) -> None:
    """Raises UnsupportedMediaType for a Content-Type that is not one of these, or not UTF-8."""
    media_type, _, parameters = header.partition(";")
    if media_type and media_type.strip().lower() not in media_types:
        listed = " or ".join(media_types)
        raise UnsupportedMediaType(
            f"the body's Content-Type should be {listed} (curl's -d says otherwise unless told: "
            f"-H 'Content-Type: {media_types[0]}')"
        )
    charset = parameters.lower().partition("charset=")[2].strip(' "')
    if charset and not charset.startswith(("utf-8", "utf8")):
        raise UnsupportedMediaType("the body's charset should be utf-8")
