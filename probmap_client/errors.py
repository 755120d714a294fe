"""What can go wrong, as exceptions.

ProbmapError          everything that this package raises of itself
├── InvalidInput      numbers that cannot be sent (also a ValueError)
├── Refused           the server answered with an error: its code, row and message
│   ├── Unauthorized      the API key is missing or wrong
│   ├── Overloaded        429 or 503; it was tried again, and there was still no room
│   └── DeadlineExceeded  the server saw that the time was over (also a TimeoutError)
├── TimedOut          no answer within the time (also a TimeoutError)
├── Disconnected      no connection, or it was lost (also a ConnectionError)
└── InvalidAnswer     the answer is not one of this service
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from probmap_client.reply import Reply

BY_ROW = ("logits", "targets", "seed")
"""The fields of a request of which the first place is that of a row."""

MAX_TEXT = 200
"""Characters of an answer of another kind that a message repeats (a count)."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a request.

    Attributes:
        loc: where in the request: names and places, such as ("mapping", "alpha", 1).
        message: what is wrong and what to do about it.
    """

    loc: tuple[str | int, ...]
    message: str

    @property
    def row(self) -> int | None:
        """The row that it is about; None where it is about none, or not about one alone."""
        match self.loc:
            case [field, int(row), *_] if field in BY_ROW:
                return row
            case ["mapping", _, int(row)]:
                return row
        return None


class ProbmapError(Exception):
    """Whatever this package raises of itself.

    Attributes:
        code: the kind of error, a stable word for programs.
        detail: what is wrong and what to do about it.
        row: the row it is about, if there is one.
        index: in a stream, the place of the request that failed.
    """

    code: str = "error"

    def __init__(self, detail: str, *, row: int | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.row = row
        self.index = 0


class InvalidInput(ProbmapError, ValueError):
    """Numbers that cannot be sent: no numbers at all, or in no shape that has rows."""

    code = "invalid_input"


class TimedOut(ProbmapError, TimeoutError):
    """No answer came within the time that the call was given."""

    code = "timed_out"


class Disconnected(ProbmapError, ConnectionError):
    """There was no connection, or it was lost, at every try."""

    code = "disconnected"


class InvalidAnswer(ProbmapError):
    """The answer is not one of this service; something else may be at the address."""

    code = "invalid_answer"


class Refused(ProbmapError):
    """The server answered with an error.

    Attributes:
        status: the HTTP status.
        problems: each thing that is wrong, the first few of them.
        request_id: what finds the request in the server's log.
        retry_after: when the server says to try again (seconds); None: it does not say.
    """

    def __init__(
        self,
        detail: str,
        *,
        code: str,
        status: int,
        problems: Sequence[Problem] = (),
        request_id: str = "",
        retry_after: float | None = None,
    ) -> None:
        rows = [problem.row for problem in problems]
        super().__init__(detail, row=rows[0] if rows else None)
        self.code = code
        self.status = status
        self.problems = tuple(problems)
        self.request_id = request_id
        self.retry_after = retry_after


class Unauthorized(Refused):
    """The API key is missing or wrong."""


class Overloaded(Refused):
    """The server has no room, is starting or stopping; it was tried as often as allowed."""


class DeadlineExceeded(Refused, TimeoutError):
    """The server saw that the answer would come after the time the call was given."""


def failure(error: httpx.HTTPError) -> ProbmapError:
    """The exception of a request that no answer came to."""
    text = str(error) or type(error).__name__
    if isinstance(error, LOST):
        return Disconnected(f"no connection to the server: {text}")
    if isinstance(error, httpx.TimeoutException):
        return TimedOut("no answer came in time; give the call more, or ask for less")
    return InvalidAnswer(f"what came is not an answer: {text}")


LOST = (httpx.NetworkError, httpx.RemoteProtocolError, httpx.ConnectTimeout, httpx.ProxyError)
"""What a lost connection, or none at all, looks like."""

KINDS: dict[int, type[Refused]] = {
    401: Unauthorized,
    403: Unauthorized,
    429: Overloaded,
    503: Overloaded,
    504: DeadlineExceeded,
}
"""The exception of an HTTP status; any other is plainly Refused."""


def refusal(reply: Reply) -> Refused:
    """The exception of an answer that is not 200."""
    document = _problem_document(reply)
    kind = KINDS.get(reply.status, Refused)
    return kind(
        str(document.get("detail") or f"the server answered {reply.status}"),
        code=str(document.get("code") or f"http_{reply.status}"),
        status=reply.status,
        problems=[
            Problem(tuple(entry.get("loc", ())), str(entry.get("message", "")))
            for entry in document.get("errors", ())
        ],
        request_id=reply.headers.get("x-request-id", ""),
        retry_after=_seconds(reply.headers.get("retry-after")),
    )


def _problem_document(reply: Reply) -> dict[str, Any]:
    """The problem document of an answer; of one that something else sent, its text."""
    try:
        document = json.loads(reply.body)
    except ValueError:
        document = None
    if isinstance(document, dict) and "code" in document:
        return document
    text = " ".join(reply.body[: 4 * MAX_TEXT].decode("utf-8", "replace").split())[:MAX_TEXT]
    return {"detail": f"the server answered {reply.status}: {text}"} if text else {}


def _seconds(text: str | None) -> float | None:
    """What a Retry-After header says: seconds, or a date."""
    if text is None:
        return None
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (aware - datetime.now(UTC)).total_seconds())
