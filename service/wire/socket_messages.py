"""The binary messages of a WebSocket: Open Inference Protocol bodies, with the length in front.

Over HTTP a header says where a body's JSON ends and its tensors begin; here the first four bytes
do (unsigned, little-endian), in requests and in answers. The model is `model_name` in the JSON.
"""

from typing import Any

import orjson

from mappings.errors import ProbmapError
from mappings.evaluation import Evaluation
from mappings.registry import MAPPINGS, registered
from service.engine.job import Job
from service.errors import MalformedBody, problem
from service.settings import Settings
from service.wire.exchange import Body, Encoded
from service.wire.oip_exchange import OipExchange
from service.wire.oip_header import HEADER
from service.wire.shared_memory import Regions

LENGTH_BYTES = 4
"""What stands in front of a message (bytes)."""

MEDIA_TYPE = "application/octet-stream"


class SocketExchange:
    """A binary message and its answer."""

    timeout_seconds: float | None = None

    def __init__(self, settings: Settings, regions: Regions) -> None:
        self.beside_bytes = regions.bytes
        self.takes_views = False
        self._settings = settings
        self._regions = regions
        self._id: object = None
        self._inner: OipExchange | None = None

    def decode(self, body: Body) -> Job:
        """The job that a message asks for."""
        assert isinstance(body, bytearray)
        length = int.from_bytes(body[:LENGTH_BYTES], "little")
        if not 0 < length <= len(body) - LENGTH_BYTES:
            raise MalformedBody(
                f"a binary message begins with the length of its JSON, {LENGTH_BYTES} bytes, "
                f"little-endian; {length:,} is not the length of what {len(body):,} bytes hold"
            )
        del body[:LENGTH_BYTES]
        header = _json(body[:length])
        self._id = header.get("id")
        mapping = registered(MAPPINGS, str(header.get("model_name", "")))
        self._inner = OipExchange(mapping, [str(length)], self._settings, self._regions)
        job = self._inner.decode(body)
        self.timeout_seconds = self._inner.timeout_seconds
        return job

    def written_bytes(self, job: Job, evaluation: Evaluation) -> int:
        """About how much `encode` writes that is not there yet (bytes)."""
        assert self._inner is not None
        return self._inner.written_bytes(job, evaluation)

    def encode(self, job: Job, evaluation: Evaluation) -> Encoded:
        """The answer."""
        assert self._inner is not None
        answer = self._inner.encode(job, evaluation)
        lengths = [value for name, value in answer.headers if name == HEADER.lower().encode()]
        length = int(lengths[0]) if lengths else answer.size
        return Encoded([length.to_bytes(LENGTH_BYTES, "little"), *answer.parts], MEDIA_TYPE)

    def failed(self, error: ProbmapError, request_id: str) -> Encoded:
        """The message of an error: JSON alone."""
        told = {**problem(error, request_id)}
        if isinstance(self._id, str):
            told["id"] = self._id
        text = orjson.dumps(told)
        return Encoded([len(text).to_bytes(LENGTH_BYTES, "little"), text], MEDIA_TYPE)


def _json(text: bytearray) -> dict[str, Any]:
    try:
        header = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise MalformedBody("the JSON of the message is not valid JSON") from None
    if not isinstance(header, dict):
        raise MalformedBody('the JSON of the message should be an object: {"model_name": …}')
    return header
