"""The JSON lines of a stream: a request a line, an answer a line."""

from typing import Any

import orjson

from mappings.errors import ProbmapError
from mappings.evaluation import Evaluation
from schemas.errors import InvalidRequest
from schemas.request import LossRequest, MapRequest, Request, SampleRequest
from service.engine.job import Job
from service.errors import problem
from service.settings import Settings
from service.wire.exchange import Body, Encoded
from service.wire.json_decode import job_of
from service.wire.json_encode import encode, written_bytes
from service.wire.limits import check_answer
from service.wire.number_arrays import parse

MEDIA_TYPES = ("application/x-ndjson", "application/jsonl")
"""What a stream of lines is read as, and written as the first of."""

OPERATIONS: dict[str, type[Request]] = {
    "map": MapRequest,
    "sample": SampleRequest,
    "loss": LossRequest,
}
"""What the field `op` of a line can ask for; the first when it is missing."""

MAX_ID = 256
"""Characters of an id that a line can have (a count)."""


class LineExchange:
    """One line and its answer.

    Attributes:
        index: the line's place in the stream, from 0; lines without anything do not count.
        id: what the line calls itself; None: nothing, or not known before `decode`.
    """

    timeout_seconds: float | None = None
    beside_bytes: int = 0
    takes_views: bool = False

    def __init__(self, index: int, settings: Settings) -> None:
        self.index = index
        self.id: str | int | None = None
        self._settings = settings

    def decode(self, body: Body) -> Job:
        """The job that a line asks for."""
        assert isinstance(body, bytearray)
        document = self.read(body)
        job = job_of(document, taken_operation(document), self._settings)
        check_answer(job.request, job.rows, job.classes, self._settings, is_text=True)
        return job

    def read(self, body: bytearray) -> dict[str, Any]:
        """The fields of a line, but its id, which is kept."""
        document: Any = parse(body, self._settings)
        if not isinstance(document, dict):
            raise InvalidRequest.at((), 'a line should be an object: {"logits": …, "mapping": …}')
        self.id = _checked_id(document.pop("id", None))
        return document

    def written_bytes(self, job: Job, evaluation: Evaluation) -> int:
        """About how long the answer's line will be (bytes)."""
        return written_bytes(evaluation)

    def encode(self, job: Job, evaluation: Evaluation) -> Encoded:
        """The answer's line, without a line break."""
        first, *rest = encode(job, evaluation, self._settings)
        return Encoded([self._named(), first[1:], *rest], MEDIA_TYPES[0])

    def failed(self, error: ProbmapError, request_id: str) -> Encoded:
        """The line of an error."""
        told = b'"error":%b}' % orjson.dumps(problem(error, request_id))
        return Encoded([self._named(), told], MEDIA_TYPES[0])

    def _named(self) -> bytes:
        """The beginning of the line: which request it answers."""
        return b'{"index":%d,"id":%b,' % (self.index, orjson.dumps(self.id))


def taken_operation(fields: dict[str, Any]) -> type[Request]:
    """The kind of request that `op` names, which is taken out of the fields.

    Raises:
        InvalidRequest: it names none.
    """
    operation = fields.pop("op", next(iter(OPERATIONS)))
    if not isinstance(operation, str) or operation not in OPERATIONS:
        raise InvalidRequest.at(("op",), f"op should be one of {', '.join(OPERATIONS)}")
    return OPERATIONS[operation]


def closing(requests: int, failed: int, error: ProbmapError | None, request_id: str) -> bytes:
    """The last line of a stream: how many lines there were, and why it ended before its time."""
    told: dict[str, Any] = {"done": error is None, "lines": requests, "failed": failed}
    if error is not None:
        told["error"] = problem(error, request_id)
    return orjson.dumps(told)


def _checked_id(given: object) -> str | int | None:
    """An id that a client gave; raises InvalidRequest when it is none."""
    if given is None or (isinstance(given, int) and not isinstance(given, bool)):
        return given
    if isinstance(given, str) and len(given) <= MAX_ID:
        return given
    message = f"id should be a whole number, or a text of at most {MAX_ID} characters"
    raise InvalidRequest.at(("id",), message)
