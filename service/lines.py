"""Lines of a body that is still arriving."""

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from service.messages import next_of_body


async def lines(
    receive: Receive, limit: int, idle_seconds: float, ending: asyncio.Event
) -> AsyncIterator[bytearray | None]:
    """The lines of a body as they come, without their ends; empty ones are left out.

    Args:
        receive: the request's, owned by who iterates.
        limit: the longest line (bytes); a longer one is dropped and comes as None.
        idle_seconds: how long the client may send nothing.
        ending: set when no more lines are to be read.

    Raises:
        BodyTimeout: the client sent nothing for too long.
        ClientDisconnect: the client left.
    """
    line = bytearray()
    is_long = False
    while True:
        message = await next_of_body(receive, idle_seconds, ending)
        if message is None:
            return
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk = message.get("body", b"")
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            line += memoryview(chunk)[start:end]
            start = end + 1
            if is_long or len(line) > limit:
                yield None
            elif line.strip():
                yield line
            line, is_long = bytearray(), False
        line += memoryview(chunk)[start:]
        if len(line) > limit:
            line, is_long = bytearray(), True
        if not message.get("more_body", False):
            break
    if is_long:
        yield None
    elif line.strip():
        yield line
