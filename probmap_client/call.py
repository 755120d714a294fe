"""A call from its first try to its result, without a socket: what to send, when, and what it was.

The clients, sync and async, only send what they are told to, wait as long as they are told to,
and hand back what came.
"""

import math
import random
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, TypeVar

import httpx

from probmap_client.body import Body
from probmap_client.errors import failure, refusal
from probmap_client.reply import Reply
from probmap_client.retries import Retries

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")

CONNECT_SECONDS = 5.0
"""Time in which a connection has to come about (seconds)."""

GRACE_SECONDS = 0.25
"""What the server's word that the time is over may take to arrive (seconds)."""

MAX_TIMEOUT_MS = 86_400_000
"""The longest time that the server takes as one (milliseconds)."""


class Asked(Protocol[T_co]):
    """What can be sent, and reads its answer.

    Attributes:
        method: the HTTP method.
        path: where to.
        accept: the media type of the answer.
        media_type: of the body; None: there is no body.
        body: what is sent.
        timeout: the time for the answer (seconds); None: the client's.
    """

    method: str
    path: str
    accept: str
    media_type: str | None
    body: Body
    timeout: float | None

    def read(self, reply: Reply) -> T_co:
        """The result in an answer."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The order to wait.

    Attributes:
        seconds: how long.
    """

    seconds: float


@dataclass(frozen=True, slots=True)
class Send:
    """The order to send a request, and to read the answer to its end.

    Attributes:
        request: what to send.
        until: when to give up (seconds of time.monotonic).
    """

    request: httpx.Request
    until: float


Outcome: TypeAlias = Reply | httpx.HTTPError | None
"""What came of a Send: an answer, or why there is none; of a Wait nothing."""

Steps: TypeAlias = Generator[Send | Wait, Outcome, T]
"""The orders of a call, which take their outcomes and end in its result."""


class Gathering:
    """An answer whose body is still coming.

    Args:
        response: its status and headers.
        until: when to give up (seconds of time.monotonic).
    """

    def __init__(self, response: httpx.Response, until: float) -> None:
        self._response = response
        self._until = until
        self._body = bytearray()

    def add(self, part: bytes) -> None:
        """Takes the next part of the body.

        Raises:
            httpx.ReadTimeout: the time is over.
        """
        if time.monotonic() > self._until:
            raise httpx.ReadTimeout("the answer was still coming")
        self._body += part

    def reply(self) -> Reply:
        """The answer, when there is no more to come."""
        return Reply(self._response.status_code, self._response.headers, self._body)


@dataclass(frozen=True, slots=True)
class Server:
    """Where and how to ask.

    Attributes:
        url: of the server, up to where its paths begin.
        timeout: for an answer, all tries together (seconds); math.inf: no limit.
        retries: when to try again.
        headers: of every request; the API key is one of them.
    """

    url: httpx.URL
    timeout: float
    retries: Retries
    headers: dict[str, str] = field(repr=False)

    def call(self, asked: Asked[T]) -> Steps[T]:
        """The steps from a request to its result.

        Raises:
            ProbmapError: there is none.
        """
        given = self.timeout if asked.timeout is None else asked.timeout
        until = time.monotonic() + given
        tried = 0
        while True:
            left = until - time.monotonic()
            outcome = yield Send(self._request(asked, left), until + GRACE_SECONDS)
            tried += 1
            if isinstance(outcome, Reply) and outcome.status == 200:
                return asked.read(outcome)
            assert outcome is not None
            error = refusal(outcome) if isinstance(outcome, Reply) else failure(outcome)
            wait = self.retries.wait(error, tried, random.random())
            if wait is None or time.monotonic() + wait >= until:
                raise error from (outcome if isinstance(outcome, Exception) else None)
            yield Wait(wait)

    def _request(self, asked: Asked[T], left: float) -> httpx.Request:
        """A try of a request with so much time left (seconds)."""
        url = self.url.copy_with(path=self.url.path.rstrip("/") + asked.path)
        headers = {"Host": url.netloc.decode(), "Accept": asked.accept, **self.headers}
        if asked.media_type is not None:
            headers["Content-Type"] = asked.media_type
            headers["Content-Length"] = str(asked.body.size)
        longest: float | None = None
        if left < math.inf:
            milliseconds = max(1, min(MAX_TIMEOUT_MS, math.ceil(left * 1000)))
            headers["X-Request-Timeout-Ms"] = str(milliseconds)
            longest = max(0.001, left) + GRACE_SECONDS
        connect = CONNECT_SECONDS if longest is None else min(CONNECT_SECONDS, longest)
        timeout = httpx.Timeout(longest, connect=connect).as_dict()
        return httpx.Request(
            asked.method,
            url,
            headers=headers,
            stream=asked.body,
            extensions={"timeout": timeout},
        )
