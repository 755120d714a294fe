"""Both clients behind one face, so that one test asks through either."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from probmap_client import AsyncClient, Client

FACES = ("sync", "async")


class Awaited:
    """An AsyncClient whose calls block, in an event loop of its own."""

    def __init__(self, *args: Any, **options: Any) -> None:
        # It needs no event loop before its first call.
        self._client = AsyncClient(*args, **options)
        self._runner = asyncio.Runner()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        return lambda *args, **options: self._runner.run(method(*args, **options))

    def stream(self, *args: Any, **options: Any) -> Iterator[Any]:
        results = self._client.stream(*args, **options)
        try:
            while True:
                try:
                    yield self._runner.run(cast(Any, anext(results)))
                except StopAsyncIteration:
                    return
        finally:
            self._runner.run(cast(Any, results).aclose())

    def close(self) -> None:
        self._runner.run(self._client.aclose())
        self._runner.close()


@contextmanager
def opened(face: str, *args: Any, **options: Any) -> Iterator[Client]:
    """A client of either face."""
    client = Client(*args, **options) if face == "sync" else Awaited(*args, **options)
    try:
        yield cast(Client, client)
    finally:
        client.close()
