"""The safetensors wire: `/v1/map`, `/v1/sample` and `/v1/loss` without a number as text."""

from collections.abc import Sequence

from mappings.evaluation import Evaluation
from schemas.request import Request
from service.engine.job import Job
from service.settings import Settings
from service.wire.exchange import Encoded
from service.wire.safetensors_decode import MEDIA_TYPE, decode
from service.wire.safetensors_encode import answer_bytes, encode


class SafetensorsExchange:
    """A safetensors request of one model, and its safetensors answer."""

    media_types: Sequence[str] | None = (MEDIA_TYPE,)
    timeout_seconds: float | None = None
    beside_bytes: int = 0

    def __init__(self, model: type[Request], settings: Settings) -> None:
        self._model = model
        self._settings = settings

    def decode(self, body: bytearray) -> Job:
        """The job that a safetensors body asks for."""
        return decode(body, self._model, self._settings)

    def answer_bytes(self, job: Job, evaluation: Evaluation) -> int:
        """About how long the answer's body will be (bytes)."""
        return answer_bytes(job, evaluation)

    def encode(self, job: Job, evaluation: Evaluation) -> Encoded:
        """The safetensors answer."""
        return Encoded(encode(job, evaluation, self._settings), MEDIA_TYPE)
