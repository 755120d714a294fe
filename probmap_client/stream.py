"""Many requests, some of them at a time, over the connections of one client."""

import asyncio
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, TypeAlias, TypeVar

from probmap_client.errors import ProbmapError
from probmap_client.requests import MapRequest, Named, Request
from probmap_client.results import MapResult

Order: TypeAlias = Literal["input", "completion"]
"""Whether results come in the order of their requests, or as they are ready."""

Errors: TypeAlias = Literal["raise", "return"]
"""What happens to a request that fails: the stream ends, or its error stands in its place."""

Outcome: TypeAlias = MapResult | ProbmapError

Flying = TypeVar("Flying", "Future[Outcome]", "asyncio.Task[Outcome]")

END = object()


@dataclass(frozen=True, slots=True)
class Stream:
    """How a stream is run.

    Attributes:
        mapping: of items that are logits; None: all are requests.
        options: of items that are logits, as MapRequest takes them.
        window: how many requests are in flight at most (a count).
        order: in which results come.
        errors: what happens to those that fail.
    """

    mapping: Named | None
    options: dict[str, Any]
    window: int
    order: Order
    errors: Errors

    def __post_init__(self) -> None:
        if self.window < 1:
            raise ValueError(f"window is {self.window}; give at least 1")
        if self.mapping is None and self.options:
            raise TypeError(f"{', '.join(self.options)} is for logits; name their mapping too")

    def results(
        self, items: Iterable[Any], ask: Callable[[Request[Any]], MapResult]
    ) -> Iterator[Any]:
        """The outcomes of all items, each asked in a thread."""

        def one(index: int, item: Any) -> Outcome:
            try:
                outcome: Outcome = ask(self._request(item))
            except ProbmapError as error:
                outcome = error
            outcome.index = index
            return outcome

        source, flying = enumerate(items), deque[Future[Outcome]]()
        pool = ThreadPoolExecutor(self.window, "probmap-stream")
        has_more = True
        try:
            while has_more or flying:
                ready = self._ready(flying)
                if ready is not None:
                    flying.remove(ready)
                    yield self._told(ready.result())
                elif has_more and len(flying) < self.window:
                    item = next(source, None)
                    has_more = item is not None
                    if item is not None:
                        flying.append(pool.submit(one, *item))
                else:
                    wait(self._awaited(flying), return_when=FIRST_COMPLETED)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    async def async_results(
        self,
        items: Iterable[Any] | AsyncIterable[Any],
        ask: Callable[[Request[Any]], Awaitable[MapResult]],
    ) -> AsyncIterator[Any]:
        """The outcomes of all items, each asked in a task."""

        async def one(index: int, item: Any) -> Outcome:
            try:
                outcome: Outcome = await ask(self._request(item))
            except ProbmapError as error:
                outcome = error
            outcome.index = index
            return outcome

        source, flying = aiter(_asynchronous(items)), deque[asyncio.Task[Outcome]]()
        # The next item is waited for beside the results: it may depend on one of them.
        pulled: asyncio.Task[Any] | None = None
        has_more, index = True, 0
        try:
            while has_more or flying:
                ready = self._ready(flying)
                if ready is not None:
                    flying.remove(ready)
                    yield self._told(ready.result())
                elif pulled is not None and pulled.done():
                    item, pulled = pulled.result(), None
                    has_more = item is not END
                    if has_more:
                        flying.append(asyncio.create_task(one(index, item)))
                        index += 1
                else:
                    if pulled is None and has_more and len(flying) < self.window:
                        pulled = asyncio.create_task(_next(source))
                    awaited = [*self._awaited(flying), *([] if pulled is None else [pulled])]
                    await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            left = [*flying, *([] if pulled is None else [pulled])]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    def _request(self, item: Any) -> Request[Any]:
        if isinstance(item, Request):
            return item
        if self.mapping is None:
            raise TypeError("a stream of logits needs their mapping: stream(logits, mapping)")
        return MapRequest(item, self.mapping, **self.options)

    def _awaited(self, flying: "deque[Flying]") -> "list[Flying]":
        """Those of which one has to end before there is a result."""
        return list(islice(flying, 1)) if self.order == "input" else list(flying)

    def _ready(self, flying: "deque[Flying]") -> "Flying | None":
        """The one whose outcome is next, when it is there."""
        return next((one for one in self._awaited(flying) if one.done()), None)

    def _told(self, outcome: Outcome) -> Outcome:
        if isinstance(outcome, ProbmapError) and self.errors == "raise":
            raise outcome
        return outcome


async def _asynchronous(items: Iterable[Any] | AsyncIterable[Any]) -> AsyncIterator[Any]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


async def _next(source: AsyncIterator[Any]) -> Any:
    return await anext(source, END)
