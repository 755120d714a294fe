"""A request's body, sent from where its arrays lie."""

from collections.abc import AsyncIterator, Iterator, Sequence

import httpx

CHUNK_BYTES = 1 << 18
"""What is handed to the socket at a time (bytes): what it does not take at once is copied."""


class Body(httpx.SyncByteStream, httpx.AsyncByteStream):
    """Bytes in parts, which can be sent more than once.

    Attributes:
        parts: one after the other; not copied.
        size: of all (bytes).
    """

    def __init__(self, parts: Sequence[bytes | memoryview] = ()) -> None:
        self.parts = parts
        self.size = sum(len(part) for part in parts)

    def __iter__(self) -> Iterator[bytes]:
        """The bytes, some at a time."""
        for part in self.parts:
            for start in range(0, len(part), CHUNK_BYTES):
                yield bytes(part[start : start + CHUNK_BYTES])

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The bytes, some at a time."""
        for chunk in self:
            yield chunk
