"""What a running server holds: its settings, its engine, and the threads that read and write."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from starlette.requests import Request

from service.engine.admission import Admission
from service.engine.batch import Batch
from service.engine.engine import Engine
from service.heap import trim_heap
from service.rooms import Rooms
from service.settings import Settings
from service.statistics import Statistics
from service.telemetry import Metrics
from service.tracing import Tracing
from service.wire.shared_memory import Regions

T = TypeVar("T")

SMALL_BYTES = 32 << 10
"""Text up to this long (bytes) is read and written at once: a change of thread costs more."""


class Runtime:
    """The parts of a running server that routes use."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.admission = Admission(settings)
        self.statistics = Statistics()
        self.metrics = Metrics()
        self.tracing = None if settings.traces == "off" else Tracing()
        self.rooms = Rooms()
        self.engine = Engine(settings, self._observe, self._give_back)
        self.regions = Regions(settings.allow_shared_memory, self.rooms)
        self.metrics.watch(self.engine, self.admission)
        self._codecs = ThreadPoolExecutor(settings.codec_threads, thread_name_prefix="codec")

    async def transcode(self, size: int, function: Callable[[], T]) -> T:
        """Reads or writes a text of about `size` bytes, off the event loop when it is large."""
        if size <= SMALL_BYTES:
            return function()
        return await asyncio.get_running_loop().run_in_executor(self._codecs, function)

    def _observe(self, batch: Batch) -> None:
        self.metrics.observe_batch(batch)
        self.statistics.count_batch(batch)

    def _give_back(self) -> None:
        self.rooms.trim()
        trim_heap()

    def start(self) -> None:
        """Starts the engine, which gets ready by itself."""
        self.engine.start()

    def drain(self) -> None:
        """Lets no more requests in; those that are in go on."""
        self.admission.close()
        self.engine.drain()

    @property
    def is_idle(self) -> bool:
        """Whether every request that was let in has its answer."""
        return self.admission.permits == 0

    async def close(self) -> bool:
        """Ends the threads; returns whether all of them ended in time."""
        ended = await self.engine.close()
        if self.tracing is not None:
            await asyncio.to_thread(self.tracing.close)
        self._codecs.shutdown(wait=ended, cancel_futures=True)
        return ended


def runtime_of(request: Request) -> Runtime:
    """The runtime of the server that got the request."""
    runtime = request.app.state.runtime
    assert isinstance(runtime, Runtime)
    return runtime
