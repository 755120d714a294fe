"""The service's own errors, and the one table from an error's code to its HTTP status.

ProbmapError             (mappings.errors) everything a client can cause
├── InvalidRequest       (schemas.errors)
├── MalformedRequest     not HTTP/1.1
├── MalformedBody        not what its media type says
├── InvalidSharedMemory  a region that is not there, or not as large as it should be
├── TooLarge             over a limit, which the message names with its setting
├── HeaderTooLarge
├── HeaderTimeout, BodyTimeout  did not arrive in time
├── UnsupportedMediaType, UnsupportedEncoding
├── NotAcceptable        no format that the client accepts
├── Unauthorized         no key, or none that is valid
├── Forbidden            a web page that may not ask
├── NotFound, MethodNotAllowed
├── Overloaded           the server holds as much as it may
├── NotReady             the server is starting or stopping, or has lost its workers
├── DeadlineExceeded     the answer would come after the time the client gave it
├── OutOfMemory          the device cannot hold what the request needs
└── Internal             nothing the client caused
"""

from typing import Any

from mappings.errors import ProbmapError
from service.settings import allowance


class MalformedRequest(ProbmapError):
    """What came is not HTTP/1.1."""

    code = "malformed_request"


class MalformedBody(ProbmapError):
    """The body is not what its media type says."""

    code = "malformed_body"


class InvalidSharedMemory(ProbmapError):
    """A shared memory region is not there, not as large as it should be, or not allowed."""

    code = "invalid_shared_memory"


class TooLarge(ProbmapError):
    """A request or its answer is over a limit."""

    code = "too_large"

    @classmethod
    def over(cls, what: str, setting: str, limit: int) -> "TooLarge":
        """The error of going over the limit of one setting."""
        return cls(f"{what}; {allowance(setting, limit)}")


class HeaderTooLarge(ProbmapError):
    """The header is over its limit."""

    code = "header_too_large"


class HeaderTimeout(ProbmapError):
    """The header did not arrive in time."""

    code = "header_timeout"


class BodyTimeout(ProbmapError):
    """The body did not arrive in time."""

    code = "body_timeout"


class UnsupportedMediaType(ProbmapError):
    """The body is of a media type that the route does not read."""

    code = "unsupported_media_type"


class UnsupportedEncoding(ProbmapError):
    """The body is compressed in a way that the server does not read."""

    code = "unsupported_encoding"


class NotAcceptable(ProbmapError):
    """The client accepts none of the formats that there are."""

    code = "not_acceptable"


class Unauthorized(ProbmapError):
    """The server asks for a key, and none that is valid came."""

    code = "unauthorized"


class Forbidden(ProbmapError):
    """A web page of another site asks, and may not."""

    code = "forbidden"


class NotFound(ProbmapError):
    """Nothing is at this path."""

    code = "not_found"


class MethodNotAllowed(ProbmapError):
    """The path has no such method."""

    code = "method_not_allowed"


class Overloaded(ProbmapError):
    """The server holds as much as it may; another try may find room.

    Attributes:
        retry_after: when to try again (seconds).
    """

    code = "overloaded"

    def __init__(self, detail: str, retry_after: int) -> None:
        super().__init__(detail)
        self.retry_after = retry_after


class NotReady(ProbmapError):
    """The server is starting or stopping, or has lost its workers.

    Attributes:
        retry_after: when to try again (seconds); None: it will not be ready again.
    """

    code = "not_ready"

    def __init__(self, detail: str, retry_after: int | None = 1) -> None:
        super().__init__(detail)
        self.retry_after = retry_after

    @classmethod
    def lost(cls) -> "NotReady":
        """The error of a server without workers."""
        return cls("the server has lost its workers and must be started anew", None)


class DeadlineExceeded(ProbmapError):
    """The answer would come after the time that the client gave it."""

    code = "deadline_exceeded"

    def __init__(self) -> None:
        super().__init__(
            "the answer was not ready within the time that the request gave it; give it more, or "
            "ask for less"
        )


class OutOfMemory(ProbmapError):
    """The device cannot hold what the request needs, even row by row."""

    code = "out_of_memory"


class Internal(ProbmapError):
    """Something the client did not cause; the log tells more."""

    code = "internal_error"

    def __init__(self) -> None:
        super().__init__("the server failed; its log tells why, under this request_id")


STATUS = {
    "malformed_request": 400,
    "malformed_body": 400,
    "invalid_shared_memory": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "unknown_name": 404,
    "method_not_allowed": 405,
    "not_acceptable": 406,
    "header_timeout": 408,
    "body_timeout": 408,
    "too_large": 413,
    "output_too_large": 413,
    "derivatives_too_large": 413,
    "unsupported_media_type": 415,
    "unsupported_encoding": 415,
    "invalid_request": 422,
    "invalid_parameter": 422,
    "invalid_row": 422,
    "overloaded": 429,
    "header_too_large": 431,
    "internal_error": 500,
    "not_ready": 503,
    "deadline_exceeded": 504,
    "out_of_memory": 507,
}
"""The HTTP status of each error code."""

MAX_DETAIL = 2000
"""Characters of an error's message (a count)."""


def problem(error: ProbmapError, request_id: str) -> dict[str, Any]:
    """The problem document (RFC 9457) of an error, of bounded size."""
    detail = error.detail[:MAX_DETAIL]
    return {
        "type": f"urn:probmap:{error.code}",
        "title": error.code.replace("_", " ").capitalize(),
        "status": STATUS[error.code],
        "detail": detail,
        "code": error.code,
        "error": detail,
        "request_id": request_id,
        "errors": [
            {"loc": list(entry.loc), "message": entry.message[:MAX_DETAIL]}
            for entry in error.problems
        ],
    }
