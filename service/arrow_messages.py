"""Messages of an Arrow stream whose body is still arriving."""

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from service.errors import NotReady
from service.messages import next_of_body
from service.wire.arrow_framing import PREFIX_BYTES, Kind, malformed, metadata_bytes, read_head


class ArrowMessages:
    """The messages of one body, each with its prefix, metadata and body in one buffer."""

    def __init__(
        self, receive: Receive, limit: int, idle_seconds: float, ending: asyncio.Event
    ) -> None:
        """Reads nothing yet.

        Args:
            receive: the request's, owned by who reads the messages.
            limit: the longest body of a message (bytes).
            idle_seconds: how long the client may send nothing.
            ending: set when no more messages are to be read.
        """
        self._receive = receive
        self._limit = limit
        self._idle_seconds = idle_seconds
        self._ending = ending
        self._kept = bytearray()
        self._is_over = False

    async def schema(self) -> bytearray:
        """The schema, which comes first.

        Raises:
            MalformedBody: the body is not an Arrow stream.
            BodyTimeout: the client sent nothing for too long.
            NotReady: the server is stopping.
            ClientDisconnect: the client left.
        """
        message = await self._next(Kind.SCHEMA)
        if message is not None:
            return message
        if self._ending.is_set():
            raise NotReady("the server is stopping; ask another one")
        raise malformed("it has no schema")

    async def batches(self) -> AsyncIterator[bytearray | None]:
        """The batches as they come, to the end; one longer than the limit is dropped: None.

        Raises:
            MalformedBody: what comes is no batch, or the body ends within one.
            BodyTimeout: the client sent nothing for too long.
            ClientDisconnect: the client left.
        """
        while (message := await self._next(Kind.BATCH)) is not None:
            yield message or None

    async def _next(self, kind: Kind) -> bytearray | None:
        """The next message; empty when it was dropped, None when there is none."""
        if not await self._fill(PREFIX_BYTES):
            return None
        size = metadata_bytes(self._kept)
        # What follows the stream's end is not read: the client need not have ended its body.
        if size == 0 or not await self._fill(PREFIX_BYTES + size):
            return None
        head = read_head(self._kept[PREFIX_BYTES : PREFIX_BYTES + size])
        if head.kind != kind:
            raise malformed(_UNEXPECTED[head.kind])
        whole = PREFIX_BYTES + size + head.body_bytes
        if head.body_bytes > self._limit:
            return bytearray() if await self._drop(whole) else None
        if not await self._fill(whole):
            return None
        message, self._kept = self._kept, self._kept[whole:]
        del message[whole:]
        return message

    async def _fill(self, size: int) -> bool:
        """Waits for so many bytes; False: the body ended before the first, or it is time to end."""
        while len(self._kept) < size:
            if not await self._more():
                return self._ended(within=bool(self._kept))
        return True

    async def _drop(self, size: int) -> bool:
        """Drops so many bytes, which may be more than could be held."""
        while len(self._kept) < size:
            size -= len(self._kept)
            self._kept.clear()
            if not await self._more():
                return self._ended(within=True)
        del self._kept[:size]
        return True

    def _ended(self, *, within: bool) -> bool:
        if within and not self._ending.is_set():
            raise malformed("it ends within a message")
        return False

    async def _more(self) -> bool:
        """Takes what comes next; False: nothing will."""
        if self._is_over:
            return False
        message = await next_of_body(self._receive, self._idle_seconds, self._ending)
        if message is None:
            return False
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        self._kept += message.get("body", b"")
        self._is_over = not message.get("more_body", False)
        return True


_UNEXPECTED = {
    Kind.SCHEMA: "a second schema comes after the first",
    Kind.DICTIONARY: "a dictionary comes where no column can have one",
    Kind.BATCH: "a batch comes before the schema",
}
