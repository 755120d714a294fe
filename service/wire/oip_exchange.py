"""The Open Inference Protocol's wire: one request to one model, and its answer."""

from mappings.base import Mapping
from mappings.evaluation import Evaluation
from service.engine.job import Job
from service.settings import Settings
from service.wire.exchange import Body, Encoded
from service.wire.oip_decode import decode
from service.wire.oip_encode import encode, written_bytes
from service.wire.oip_header import json_length
from service.wire.oip_message import Message
from service.wire.shared_memory import Regions


class OipExchange:
    """A request to a mapping as JSON, as JSON with tensors behind it, or as one row of FP32."""

    timeout_seconds: float | None = None

    def __init__(
        self, mapping: type[Mapping], lengths: list[str], settings: Settings, regions: Regions
    ) -> None:
        """Prepares to read a body.

        Args:
            mapping: the model that is asked.
            lengths: every value of the request's header Inference-Header-Content-Length.
            settings: the limits.
            regions: of shared memory.
        """
        self._mapping = mapping
        self._lengths = lengths
        self._settings = settings
        self._regions = regions
        self._message: Message | None = None
        self.beside_bytes = regions.bytes
        # Without the header a body is all JSON, whose parser wants a bytearray.
        self.takes_views = bool(lengths)

    def decode(self, body: Body) -> Job:
        """The job that a body asks for."""
        json_bytes = json_length(self._lengths, len(body))
        job, message = decode(body, json_bytes, self._mapping, self._settings, self._regions)
        self._message, self.timeout_seconds = message, message.timeout_seconds
        return job

    @property
    def is_read(self) -> bool:
        """Whether the body was understood."""
        return self._message is not None

    def written_bytes(self, job: Job, evaluation: Evaluation) -> int:
        """About how much `encode` writes that is not there yet (bytes)."""
        assert self._message is not None
        return written_bytes(self._message, job, evaluation)

    def encode(self, job: Job, evaluation: Evaluation) -> Encoded:
        """The answer."""
        assert self._message is not None
        return encode(self._message, job, evaluation, self._settings, self._regions)
