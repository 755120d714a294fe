"""The client that blocks."""

import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar, overload

import httpx

from probmap_client.call import Asked, Gathering, Outcome, Send
from probmap_client.connection import Connection
from probmap_client.descriptions import (
    MAPPINGS,
    PROCESSORS,
    MappingDescription,
    ProcessorDescription,
)
from probmap_client.errors import ProbmapError
from probmap_client.requests import LossRequest, MapRequest, Named, Request, SampleRequest
from probmap_client.results import MapResult
from probmap_client.signatures import takes_what
from probmap_client.stream import Errors, Order, Stream
from probmap_client.tensors import Numbers

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R", bound=MapResult)


def _asking(make: Callable[P, Request[R]]) -> "Callable[Concatenate[Client, P], R]":
    @takes_what(make)
    def ask(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.ask(make(*args, **kwargs))

    return ask


class Client(Connection[httpx.Client]):
    """A client whose calls block until they are answered.

    Any number of threads may share it, and its connections. It is closed with `close`, or by
    `with`. The arguments are those of Connection.

        with Client("http://127.0.0.1:8000") as client:
            result = client.map(logits, "sparsemax")
            print(result.probabilities)
    """

    _pool = httpx.Client
    _transport = httpx.HTTPTransport

    map = _asking(MapRequest)
    sample = _asking(SampleRequest)
    loss = _asking(LossRequest)

    def mappings(self) -> dict[str, MappingDescription]:
        """What there is to map with, by name: formulas, limits, parameters."""
        return self.ask(MAPPINGS)

    def processors(self) -> dict[str, ProcessorDescription]:
        """What logits can go through first, by name: rules, limits, parameters."""
        return self.ask(PROCESSORS)

    @overload
    def stream(
        self,
        requests: Iterable[Request[R]],
        *,
        window: int = ...,
        order: Order = ...,
        errors: Literal["raise"] = ...,
    ) -> Iterator[R]: ...

    @overload
    def stream(
        self,
        requests: Iterable[Request[R]],
        *,
        window: int = ...,
        order: Order = ...,
        errors: Errors,
    ) -> Iterator[R | ProbmapError]: ...

    @overload
    def stream(
        self,
        requests: Iterable[Numbers],
        mapping: Named,
        *,
        window: int = ...,
        order: Order = ...,
        errors: Literal["raise"] = ...,
        **options: Any,
    ) -> Iterator[MapResult]: ...

    @overload
    def stream(
        self,
        requests: Iterable[Numbers],
        mapping: Named,
        *,
        window: int = ...,
        order: Order = ...,
        errors: Errors,
        **options: Any,
    ) -> Iterator[MapResult | ProbmapError]: ...

    def stream(
        self,
        requests: Iterable[Any],
        mapping: Named | None = None,
        *,
        window: int = 16,
        order: Order = "input",
        errors: Errors = "raise",
        **options: Any,
    ) -> Iterator[Any]:
        """The results of many requests, some of which are in flight at a time.

        Memory does not grow with the stream: the next request is taken when there is room for
        it, and whoever stops reading stops that. Leaving the loop drops what is not sent yet.

        Args:
            requests: MapRequest, SampleRequest and LossRequest, or logits if a mapping is named.
            mapping: of logits.
            window: how many requests are in flight at most (a count).
            order: "input" gives results in the order of the requests, "completion" as they are
                ready; a result's `index` tells which it is.
            errors: "raise" ends the stream at a request that fails, "return" gives its error in
                its place.
            options: of logits, as `map` takes them.
        """
        plan = Stream(mapping, options, window, order, errors)
        return plan.results(requests, self.ask)

    def ask(self, request: Asked[T]) -> T:
        """The result of a request.

        Raises:
            ProbmapError: there is none.
        """
        steps = self._server.call(request)
        outcome: Outcome = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as end:
                found: T = end.value
                return found
            outcome = None
            if isinstance(step, Send):
                outcome = self._sent(step)
            else:
                time.sleep(step.seconds)

    def _sent(self, step: Send) -> Outcome:
        try:
            response = self._http.send(step.request, stream=True)
            try:
                gathering = Gathering(response, step.until)
                for part in response.iter_bytes():
                    gathering.add(part)
            finally:
                response.close()
        except httpx.HTTPError as error:
            return error
        return gathering.reply()

    def close(self) -> None:
        """Closes the connections; the client cannot be used any more."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
