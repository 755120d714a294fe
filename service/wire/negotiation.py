"""Which formats a request and its answer are in: Content-Type says the one, Accept the other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mappings.evaluation import Evaluation
from schemas.request import Request
from service.engine.job import Job
from service.errors import NotAcceptable
from service.settings import Settings
from service.wire import json_decode, json_encode, safetensors_decode, safetensors_encode
from service.wire.exchange import Body, Encoded
from service.wire.limits import check_answer
from service.wire.preferences import preferences


@dataclass(frozen=True, slots=True)
class Format:
    """A format of requests and of answers.

    Attributes:
        media_type: its name.
        is_text: whether numbers are written as text.
        decode: the job that a body asks for; of text, a bytearray.
        written_bytes: about how much `encode` writes that is not there yet (bytes).
        encode: the body of an answer, in parts.
    """

    media_type: str
    is_text: bool
    decode: Callable[[Any, type[Request], Settings], Job]
    written_bytes: Callable[[Evaluation], int]
    encode: Callable[[Job, Evaluation, Settings], Sequence[bytes | memoryview]]


FORMATS = {
    found.media_type: found
    for found in (
        Format(
            "application/json",
            True,
            json_decode.decode,
            json_encode.written_bytes,
            json_encode.encode,
        ),
        Format(
            safetensors_decode.MEDIA_TYPE,
            False,
            safetensors_decode.decode,
            safetensors_encode.written_bytes,
            safetensors_encode.encode,
        ),
    )
}
"""Those there are, by media type; the first is the one assumed."""


class NegotiatedExchange:
    """A request in one format, and its answer in another or the same."""

    timeout_seconds: float | None = None
    beside_bytes: int = 0

    def __init__(
        self, model: type[Request], reader: Format, writer: Format, settings: Settings
    ) -> None:
        self._model = model
        self._reader = reader
        self._writer = writer
        self._settings = settings
        self.takes_views = not reader.is_text

    def decode(self, body: Body) -> Job:
        """The job that a body asks for."""
        settings, is_text = self._settings, self._writer.is_text
        job = self._reader.decode(body, self._model, settings)
        check_answer(job.request, job.rows, job.classes, settings, is_text=is_text)
        return job

    def written_bytes(self, job: Job, evaluation: Evaluation) -> int:
        """About how much `encode` writes that is not there yet (bytes)."""
        return self._writer.written_bytes(evaluation)

    def encode(self, job: Job, evaluation: Evaluation) -> Encoded:
        """The body of the answer."""
        parts = self._writer.encode(job, evaluation, self._settings)
        return Encoded(parts, self._writer.media_type)


def negotiated(
    content_type: str, accept: str, model: type[Request], settings: Settings
) -> NegotiatedExchange:
    """The exchange that a request's headers ask for.

    Args:
        content_type: the header of this name; who reads the body refuses what is in no format.
        accept: the header of this name; empty accepts anything.
        model: the kind of request.
        settings: the limits.

    Raises:
        NotAcceptable: Accept excludes every format that there is.
    """
    given = content_type.partition(";")[0].strip().lower()
    body = given if given in FORMATS else next(iter(FORMATS))
    answer = accepted(accept, body)
    if answer is None:
        formats = " or ".join(FORMATS)
        raise NotAcceptable(f"the answer can be {formats}; Accept excludes both")
    return NegotiatedExchange(model, FORMATS[body], FORMATS[answer], settings)


def accepted(accept: str, body: str) -> str | None:
    """The format of the answer; None: no format is accepted.

    The one of the highest quality wins; of equals, the one that is named over one that a
    wildcard lets in; of equals again, the body's.

    Args:
        accept: the Accept header; empty accepts anything.
        body: the format of the request's body.
    """
    ranges = preferences(accept) or [("*/*", 1.0)]
    ranked = [(*_rank(name, ranges), name == body, name) for name in FORMATS]
    quality, _, _, name = max(ranked, key=lambda rank: rank[:3])
    return name if quality > 0 else None


def _rank(name: str, ranges: Sequence[tuple[str, float]]) -> tuple[float, int]:
    """The quality that the ranges give a format, and how closely the one that does so names it."""
    family = name.partition("/")[0]
    for closeness, wanted in ((2, name), (1, f"{family}/*"), (0, "*/*")):
        found = [quality for media_range, quality in ranges if media_range == wanted]
        if found:
            return max(found), closeness
    return 0.0, 0
