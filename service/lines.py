"""Lines of a body that is still arriving."""

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive

from service.errors import BodyTimeout
from service.settings import flag


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
        message = await next_message(receive, idle_seconds, ending)
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


async def next_message(
    receive: Receive, idle_seconds: float | None, ending: asyncio.Event
) -> Message | None:
    """The next message of a connection; None: it is time to end.

    Args:
        receive: the connection's.
        idle_seconds: how long to wait for one; None: for any time.
        ending: set when it is time to end.

    Raises:
        BodyTimeout: nothing came for too long.
    """
    receiving = asyncio.ensure_future(receive())
    stopping = asyncio.ensure_future(ending.wait())
    try:
        done, _ = await asyncio.wait(
            (receiving, stopping), timeout=idle_seconds, return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        stopping.cancel()
        if not receiving.done():
            receiving.cancel()
    if receiving in done:
        return receiving.result()
    if stopping in done:
        return None
    raise BodyTimeout(
        f"nothing came for {idle_seconds:g} seconds "
        f"({flag('stream_idle_seconds')} of the server sets this time)"
    )
