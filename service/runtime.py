"""What a running server holds: its settings, its engine, and the threads that read and write."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from starlette.requests import Request

from service.engine.engine import Engine
from service.settings import Settings

T = TypeVar("T")

SMALL_BYTES = 32 << 10
"""Text up to this long (bytes) is read and written at once: a change of thread costs more."""


class Runtime:
    """The parts of a running server that routes use."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.engine = Engine(settings.device)
        self._codecs = ThreadPoolExecutor(settings.codec_threads, thread_name_prefix="codec")

    async def transcode(self, size: int, function: Callable[[], T]) -> T:
        """Reads or writes a text of about `size` bytes, off the event loop when it is large."""
        if size <= SMALL_BYTES:
            return function()
        return await asyncio.get_running_loop().run_in_executor(self._codecs, function)

    async def start(self) -> None:
        """Makes the engine ready."""
        await self.engine.start()

    def close(self) -> None:
        """Ends the threads once their work is done."""
        self.engine.close()
        self._codecs.shutdown()


def runtime_of(request: Request) -> Runtime:
    """The runtime of the server that got the request."""
    runtime = request.app.state.runtime
    assert isinstance(runtime, Runtime)
    return runtime
