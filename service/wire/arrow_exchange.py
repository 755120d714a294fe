"""One batch of an Arrow stream and its answer."""

from typing import Any

import pyarrow as pa

from mappings.errors import ProbmapError
from mappings.evaluation import Evaluation
from service.engine.job import Job
from service.errors import MalformedBody
from service.settings import Settings
from service.wire.arrow_answer import answer_batch, answer_schema, failed_batch
from service.wire.arrow_framing import MEDIA_TYPE, PREFIX_BYTES, metadata_bytes, read_head
from service.wire.arrow_request import ArrowRequest
from service.wire.exchange import Body, Encoded
from service.wire.limits import check_answer

LARGE_BYTES = 4 << 10
"""Parts of a message from this length on (bytes) are sent from where they lie."""


class ArrowAnswers:
    """What all answers of a stream share.

    Attributes:
        asked: the stream's request.
        schema: of the answers.
        opening: the message of this schema.
    """

    def __init__(self, asked: ArrowRequest) -> None:
        self.asked = asked
        self.schema = answer_schema(asked)
        self.opening = bytes(self.schema.serialize())

    def message(self, batch: Any) -> list[bytes | memoryview]:
        """The message of a batch, in parts; the large ones are the batch's own memory."""
        parts = _Parts(len(self.opening))
        with pa.ipc.new_stream(parts, self.schema) as writer:
            writer.write_batch(batch)
            return parts.found()

    def failed(self, rows: int, error: ProbmapError, request_id: str) -> Encoded:
        """The message of a batch without an answer."""
        return Encoded(self.message(failed_batch(rows, error, request_id, self.schema)), MEDIA_TYPE)


class ArrowExchange:
    """One batch and its answer."""

    timeout_seconds: float | None = None
    beside_bytes: int = 0
    takes_views: bool = False

    def __init__(self, answers: ArrowAnswers, settings: Settings) -> None:
        self._answers = answers
        self._settings = settings
        self._rows = 1

    def decode(self, body: Body) -> Job:
        """The job that a batch asks for."""
        assert isinstance(body, bytearray)
        head = read_head(body[PREFIX_BYTES : PREFIX_BYTES + metadata_bytes(body)])
        if head.is_compressed:
            raise MalformedBody("the batch is compressed; write it without compression")
        asked = self._answers.asked
        try:
            message = pa.ipc.read_message(pa.py_buffer(body))
            batch = pa.ipc.read_record_batch(message, asked.schema)
            # It comes from strangers: every length and offset must lie within the body.
            batch.validate(full=True)
        except (pa.ArrowException, OSError):
            raise MalformedBody("the batch is not one of its stream's schema") from None
        self._note(batch.num_rows)
        job = asked.job(batch)
        check_answer(job.request, job.rows, job.classes, self._settings, is_text=False)
        return job

    def written_bytes(self, job: Job, evaluation: Evaluation) -> int:
        """About how much `encode` writes that is not there yet (bytes)."""
        # Where rows differ in length, what is behind their ends is left out of a copy.
        return job.answer_bytes if job.lengths is not None else 0

    def encode(self, job: Job, evaluation: Evaluation) -> Encoded:
        """The message of the answer."""
        batch = answer_batch(job, evaluation, self._answers.schema)
        return Encoded(self._answers.message(batch), MEDIA_TYPE)

    def failed(self, error: ProbmapError, request_id: str) -> Encoded:
        """The message of a batch without an answer."""
        return self._answers.failed(self._rows, error, request_id)

    def _note(self, rows: int) -> None:
        """Keeps how many rows a failure has to be told in; one where so many cannot be."""
        numbers = self._answers.asked.request.dense_numbers(rows, self._answers.asked.classes or 1)
        settings = self._settings
        if 1 <= rows <= settings.max_rows and numbers <= settings.max_output_elements:
            self._rows = rows


class _Parts:
    """Takes what Arrow writes: small parts joined, large ones where they are."""

    closed = False

    def __init__(self, skipped: int) -> None:
        """Leaves out the first bytes, which are the schema's message."""
        self._skipped = skipped
        self._parts: list[bytes | memoryview] = []
        self._small = bytearray()

    def write(self, data: Any) -> int:
        """Takes bytes, or a buffer, which is kept."""
        view = memoryview(data).cast("B")
        kept = view[self._skipped :]
        self._skipped -= len(view) - len(kept)
        if len(kept) < LARGE_BYTES:
            self._small += kept
        else:
            self._join()
            self._parts.append(kept)
        return len(view)

    def flush(self) -> None:
        """Nothing waits."""

    def found(self) -> list[bytes | memoryview]:
        """What was written since the schema."""
        self._join()
        return self._parts

    def _join(self) -> None:
        if self._small:
            self._parts.append(bytes(self._small))
            self._small = bytearray()
