"""What every wire offers: a request's body becomes a job, the job's answer a body."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from mappings.evaluation import Evaluation
from service.engine.job import Job

MAX_TIMEOUT_SECONDS = 86_400
"""The longest time that a request can give its answer (seconds): a day."""

Body = bytearray | memoryview
"""What a request's body is in; nothing is ever written to it."""

Headers = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Encoded:
    """A body, ready to be sent.

    Attributes:
        parts: what it consists of, in order.
        media_type: its Content-Type.
        headers: what else is to be said of it, names in lower case.
    """

    parts: Sequence[bytes | memoryview]
    media_type: str
    headers: Headers = ()

    @property
    def size(self) -> int:
        """Its length (bytes)."""
        return sum(memoryview(part).nbytes for part in self.parts)


class Exchange(Protocol):
    """One request and its answer, on one wire; made anew for each request.

    Attributes:
        timeout_seconds: the time the request's body gave its answer; None: none, or not known
            before `decode`.
        beside_bytes: what `decode` may read that is not in the body (bytes).
        takes_views: whether `decode` takes a memoryview too, as which large bodies come faster;
            if not, a bytearray alone.
    """

    timeout_seconds: float | None
    beside_bytes: int
    takes_views: bool

    def decode(self, body: Body) -> Job:
        """The job that a body asks for; may run on any thread.

        Raises:
            ProbmapError: the body is malformed, over a limit, or asks for what cannot be.
        """

    def written_bytes(self, job: Job, evaluation: Evaluation) -> int:
        """About how much `encode` writes that is not there yet (bytes)."""

    def encode(self, job: Job, evaluation: Evaluation) -> Encoded:
        """The body of the answer; may run on any thread.

        Raises:
            ProbmapError: the answer is over a limit.
        """
