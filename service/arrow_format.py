"""Streams of Arrow record batches, each answered by a batch."""

from collections.abc import AsyncIterator

from starlette.types import Receive

from service.arrow_messages import ArrowMessages
from service.runtime import Runtime
from service.stream import Arrived, Ending
from service.stream_response import Parts
from service.wire.arrow_exchange import ArrowAnswers, ArrowExchange
from service.wire.arrow_framing import CONTINUATION, MEDIA_TYPE
from service.wire.arrow_request import ArrowRequest, Query

END = CONTINUATION + bytes(4)
"""What a stream ends with."""


class ArrowFormat:
    """One stream of batches, whose schema has come."""

    media_type = MEDIA_TYPE

    def __init__(
        self, runtime: Runtime, request_id: str, messages: ArrowMessages, answers: ArrowAnswers
    ) -> None:
        self.opening = answers.opening
        self._runtime = runtime
        self._request_id = request_id
        self._messages = messages
        self._answers = answers

    async def arriving(self, _: Receive) -> AsyncIterator[Arrived]:
        """The batches as they come."""
        async for message in self._messages.batches():
            yield Arrived(ArrowExchange(self._answers, self._runtime.settings), message)

    def framed(self, parts: Parts) -> Parts:
        """An answer as it is: a message says how long it is."""
        return parts

    def closing(self, ending: Ending) -> Parts:
        """The mark of the end; where it came before its time, a row that says why instead."""
        if ending.error is None:
            return [END]
        return self._answers.failed(1, ending.error, self._request_id).parts


async def read_format(
    runtime: Runtime, request_id: str, receive: Receive, query: Query
) -> ArrowFormat:
    """The format of a stream, once its schema has come.

    Raises:
        ProbmapError: the body is no such stream, or asks for what cannot be.
        ClientDisconnect: the client left.
    """
    settings, ending = runtime.settings, runtime.admission.closing
    messages = ArrowMessages(receive, settings.max_body_bytes, settings.stream_idle_seconds, ending)
    asked = ArrowRequest(await messages.schema(), query, settings)
    return ArrowFormat(runtime, request_id, messages, ArrowAnswers(asked))
