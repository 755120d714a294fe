"""Messages of a connection that last until it is time to end."""

import asyncio

from starlette.types import Message, Receive

from service.errors import BodyTimeout
from service.settings import flag


async def next_of_body(
    receive: Receive, idle_seconds: float, ending: asyncio.Event
) -> Message | None:
    """The next message of a streamed body; None: it is time to end.

    Args:
        receive: the request's.
        idle_seconds: how long to wait: what the setting `stream_idle_seconds` says.
        ending: set when it is time to end.

    Raises:
        BodyTimeout: nothing came for too long.
    """
    limit = asyncio.timeout(idle_seconds)
    try:
        async with limit:
            return await next_message(receive, ending)
    except TimeoutError:
        if not limit.expired():
            raise
        raise BodyTimeout(
            f"nothing came for {idle_seconds:g} seconds "
            f"({flag('stream_idle_seconds')} of the server sets this time)"
        ) from None


async def next_message(receive: Receive, ending: asyncio.Event) -> Message | None:
    """The next message of a connection; None: it is time to end.

    Args:
        receive: the connection's.
        ending: set when it is time to end.
    """
    receiving = asyncio.ensure_future(receive())
    stopping = asyncio.ensure_future(ending.wait())
    try:
        await asyncio.wait((receiving, stopping), return_when=asyncio.FIRST_COMPLETED)
        return receiving.result() if receiving.done() else None
    finally:
        stopping.cancel()
        receiving.cancel()
