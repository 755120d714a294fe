"""The JSON wire: `/v1/map`, `/v1/sample` and `/v1/loss`."""

from collections.abc import Sequence

from mappings.evaluation import Evaluation
from schemas.request import Request
from service.engine.job import Job
from service.settings import Settings
from service.wire.exchange import Encoded
from service.wire.json_decode import MEDIA_TYPES, decode
from service.wire.json_encode import answer_bytes, encode


class JsonExchange:
    """A JSON request of one model, and its JSON answer."""

    media_types: Sequence[str] | None = MEDIA_TYPES
    timeout_seconds: float | None = None
    beside_bytes: int = 0

    def __init__(self, model: type[Request], settings: Settings) -> None:
        self._model = model
        self._settings = settings

    def decode(self, body: bytearray) -> Job:
        """The job that a JSON body asks for."""
        return decode(body, self._model, self._settings)

    def answer_bytes(self, job: Job, evaluation: Evaluation) -> int:
        """About how long the answer's JSON will be (bytes)."""
        return answer_bytes(evaluation)

    def encode(self, job: Job, evaluation: Evaluation) -> Encoded:
        """The JSON answer."""
        return Encoded(encode(job, evaluation, self._settings), "application/json")
