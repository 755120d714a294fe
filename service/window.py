"""A window: requests of one connection in flight, a bounded number at a time."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Generic, TypeVar

from starlette.requests import ClientDisconnect

T = TypeVar("T")


class Window(Generic[T]):
    """Lets so many pieces of work run at a time, and gives their results in order or as they come.

    Work is started by one task and its results are taken by another. A place is free again only
    when its result was taken and the next is asked for: who does not take results starts no more.
    """

    def __init__(self, size: int, *, in_order: bool) -> None:
        self._free = asyncio.Semaphore(size)
        self._in_order = in_order
        self._running: set[asyncio.Task[T]] = set()
        self._ready: asyncio.Queue[asyncio.Task[T] | None] = asyncio.Queue()
        self._is_complete = False
        self._is_abandoned = False

    async def room(self) -> None:
        """Waits for a place, and takes it."""
        await self._free.acquire()

    def start(self, work: Coroutine[Any, Any, T]) -> None:
        """Starts work in the place that was taken."""
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        if self._in_order:
            self._ready.put_nowait(task)

    def complete(self) -> None:
        """Says that nothing more will be started."""
        self._is_complete = True
        if self._in_order or not self._running:
            self._ready.put_nowait(None)

    def abandon(self) -> None:
        """Stops all work: nobody wants the results."""
        self._is_abandoned = True
        for task in self._running:
            task.cancel()
        self._ready.put_nowait(None)

    async def results(self) -> AsyncIterator[T]:
        """The results of all that is started.

        Raises:
            ClientDisconnect: the work was abandoned.
        """
        while not self._is_abandoned:
            task = await self._ready.get()
            if task is None or self._is_abandoned:
                break
            yield await task
            self._free.release()
        if self._is_abandoned:
            raise ClientDisconnect

    def _ended(self, task: asyncio.Task[T]) -> None:
        self._running.discard(task)
        if not self._in_order and not task.cancelled():
            self._ready.put_nowait(task)
            if self._is_complete and not self._running:
                self._ready.put_nowait(None)
