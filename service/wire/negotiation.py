"""Which formats a request and its answer are in: Content-Type says the one, Accept the other."""

from collections.abc import Callable, Sequence

from fastapi import Request as HttpRequest

from mappings.evaluation import Evaluation
from schemas.request import Request
from service.body import UnreadBody
from service.engine.job import Job
from service.errors import NotAcceptable
from service.runtime import runtime_of
from service.settings import Settings
from service.wire.exchange import Encoded, Exchange
from service.wire.json_exchange import JsonExchange
from service.wire.safetensors_decode import MEDIA_TYPE
from service.wire.safetensors_exchange import SafetensorsExchange

FORMATS: dict[str, Callable[[type[Request], Settings], Exchange]] = {
    "application/json": JsonExchange,
    MEDIA_TYPE: SafetensorsExchange,
}
"""The formats of a request and of its answer; the first is the one assumed."""


class NegotiatedExchange:
    """A request in one format, and its answer in another or the same."""

    media_types: Sequence[str] | None = tuple(FORMATS)
    timeout_seconds: float | None = None
    beside_bytes: int = 0

    def __init__(self, reader: Exchange, writer: Exchange) -> None:
        self._reader = reader
        self._writer = writer

    def decode(self, body: bytearray) -> Job:
        """The job that a body asks for."""
        return self._reader.decode(body)

    def answer_bytes(self, job: Job, evaluation: Evaluation) -> int:
        """About how long the answer's body will be (bytes)."""
        return self._writer.answer_bytes(job, evaluation)

    def encode(self, job: Job, evaluation: Evaluation) -> Encoded:
        """The body of the answer."""
        return self._writer.encode(job, evaluation)


def negotiated(request: HttpRequest, model: type[Request]) -> NegotiatedExchange:
    """The exchange that a request's headers ask for.

    Raises:
        UnreadBody: Accept excludes every format that there is.
    """
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    # Reading the body refuses what is in no format known.
    body = given if given in FORMATS else next(iter(FORMATS))
    answer = accepted(",".join(request.headers.getlist("accept")), body)
    if answer is None:
        formats = " or ".join(FORMATS)
        raise UnreadBody(NotAcceptable(f"the answer can be {formats}; Accept excludes both"))
    settings = runtime_of(request).settings
    return NegotiatedExchange(FORMATS[body](model, settings), FORMATS[answer](model, settings))


def accepted(accept: str, body: str) -> str | None:
    """The format of the answer; None: no format is accepted.

    The one of the highest quality wins; of equals, the one that is named over one that a
    wildcard lets in; of equals again, the body's.

    Args:
        accept: the Accept header; empty accepts anything.
        body: the format of the request's body.
    """
    ranges = [_range(part) for part in accept.split(",") if part.strip()] or [("*/*", 1.0)]
    ranked = [(*_rank(name, ranges), name == body, name) for name in FORMATS]
    quality, _, _, name = max(ranked, key=lambda rank: rank[:3])
    return name if quality > 0 else None


def _range(part: str) -> tuple[str, float]:
    """A media range and its quality; one that cannot be read excludes nothing else."""
    media_range, *parameters = (piece.strip().lower() for piece in part.split(";"))
    quality = next((text[2:] for text in parameters if text.startswith("q=")), "1")
    try:
        return media_range, min(1.0, max(0.0, float(quality)))
    except ValueError:
        return media_range, 0.0


def _rank(name: str, ranges: Sequence[tuple[str, float]]) -> tuple[float, int]:
    """The quality that the ranges give a format, and how closely the one that does so names it."""
    family = name.partition("/")[0]
    for closeness, wanted in ((2, name), (1, f"{family}/*"), (0, "*/*")):
        found = [quality for media_range, quality in ranges if media_range == wanted]
        if found:
            return max(found), closeness
    return 0.0, 0
