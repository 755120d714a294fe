"""Servers that batch, and who asks them, as a discrete-event simulation.

A server is an event loop, which reads and writes one request after the other, and a worker, which
computes whatever waits together, within a budget of elements, as service/engine does. Both need
the interpreter for some of their time, and share it where they need it at once.
"""

import random
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import simpy

from shared_processor import Shared

Steps = Generator[simpy.Event, Any, None]

Piece = tuple[float, Callable[[], None]]
"""Work of an event loop (seconds), and what follows from it."""

Choice = Literal["least", "two", "random"]
"""Who gets a request: whoever has the fewest, the lesser of two drawn, or one drawn."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What a server's work takes (seconds, of one processor that does nothing else).

    Attributes:
        read: of the event loop, from a request's arrival until it is queued.
        write: of the event loop, from an answer's numbers until it is sent.
        settle: of the event loop, a batch.
        wake: of the worker, with the interpreter, until it takes what waits.
        batch: of the worker, with the interpreter, a batch of any size.
        row: of the worker, with the interpreter, each row of it.
        kernel_batch: of the worker, beside the interpreter, a batch of any size.
        kernel_row: of the worker, beside the interpreter, each row of it.
        weight: how much of the interpreter the worker gets while the event loop wants it too, to
            each part that the loop gets (dimensionless).
        host_spread: the loop's times drawn, a pass, as ratios to their mean.
        worker_spread: the worker's times drawn, a batch, as ratios to their mean.
    """

    read: float = 0.0
    write: float = 0.0
    settle: float = 0.0
    wake: float = 0.0
    batch: float = 0.0
    row: float = 0.0
    kernel_batch: float = 0.0
    kernel_row: float = 0.0
    weight: float = 1.0
    host_spread: Sequence[float] = (1.0,)
    worker_spread: Sequence[float] = (1.0,)


@dataclass(frozen=True, slots=True)
class Pauses:
    """Times in which a server stands still: exponential in between, of one length."""

    every: float
    seconds: float


@dataclass(eq=False, slots=True)
class Call:
    """A request and what became of it.

    Attributes:
        rows: of logits (a count).
        born: when it was made (seconds).
        computed: when the worker began with it (seconds); negative: it has not.
        answered: when its answer was there (seconds); negative: it has none.
        answers: how many it got (a count).
        done: happens with its answer.
    """

    rows: int
    born: float
    done: simpy.Event
    computed: float = -1.0
    answered: float = -1.0
    answers: int = 0

    @property
    def seconds(self) -> float:
        """From its making to its answer."""
        return self.answered - self.born


@dataclass(slots=True)
class Server:
    """One server process.

    Attributes:
        costs: what its work takes.
        classes: of every row (a count).
        budget: the most logits that are computed together (a count), but for a request alone.
        slowness: how many times as long as `costs` say everything takes.
        pauses: when it stands still; None: never.
        batches: the rows of every batch (counts).
        busy: how long the worker has computed (seconds).
        outstanding: requests that came and are not answered (a count).
    """

    env: simpy.Environment
    draw: random.Random
    costs: Costs
    classes: int = 1
    budget: int = 1 << 22
    slowness: float = 1.0
    pauses: Pauses | None = None
    batches: list[int] = field(default_factory=list)
    busy: float = 0.0
    outstanding: int = 0
    _interpreter: Shared = field(init=False)
    _kernels: Shared = field(init=False)
    _pieces: list[Piece] = field(init=False, default_factory=list)
    _read: list[Call] = field(init=False, default_factory=list)
    _waiting: deque[Call] = field(init=False, default_factory=deque)
    _called: simpy.Event = field(init=False)
    _came: simpy.Event = field(init=False)

    def __post_init__(self) -> None:
        self._interpreter = Shared(self.env)
        self._kernels = Shared(self.env)
        self._called, self._came = self.env.event(), self.env.event()
        self.env.process(self._loop())
        self.env.process(self._compute())
        if self.pauses is not None:
            self.env.process(self._pause(self.pauses))

    def take(self, call: Call) -> None:
        """Takes a request."""
        self.outstanding += 1
        self._on_loop(self.costs.read, partial(self._read.append, call))

    def _on_loop(self, seconds: float, ending: Callable[[], None]) -> None:
        """So much work of the event loop, from its next pass on."""
        self._pieces.append((seconds, ending))
        if not self._called.triggered:
            self._called.succeed()

    def _loop(self) -> Steps:
        while True:
            if not self._pieces:
                self._called = self.env.event()
                yield self._called
            # What comes meanwhile is for the next pass; what is read goes to the worker together.
            turn, self._pieces = self._pieces, []
            # What makes a piece slow lasts: those of one pass are slow together.
            ratio = self._drawn(1.0, self.costs.host_spread)
            for seconds, ending in turn:
                if seconds:
                    yield self._interpreter.work(seconds * ratio)
                ending()
            self._waiting.extend(self._read)
            self._read.clear()
            if self._waiting and not self._came.triggered:
                self._came.succeed()

    def _compute(self) -> Steps:
        while True:
            if not self._waiting:
                self._came = self.env.event()
                yield self._came
            costs, started = self.costs, self.env.now
            if costs.wake:
                yield self._interpreter.work(costs.wake * self.slowness, costs.weight)
            batch = self._gathered()
            for call in batch:
                call.computed = self.env.now
            rows = sum(call.rows for call in batch)
            self.batches.append(rows)
            ratio = self._drawn(1.0, costs.worker_spread)
            held = ratio * (costs.batch + costs.row * rows)
            yield self._interpreter.work(held, costs.weight)
            yield self._kernels.work(ratio * (costs.kernel_batch + costs.kernel_row * rows))
            self.busy += self.env.now - started
            self._on_loop(costs.settle, partial(self._settle, batch))

    def _gathered(self) -> list[Call]:
        """The oldest that wait, as many as the budget allows and one at least."""
        taken = [self._waiting.popleft()]
        rows = taken[0].rows
        most = self.budget // self.classes
        while self._waiting and rows + self._waiting[0].rows <= most:
            taken.append(self._waiting.popleft())
            rows += taken[-1].rows
        return taken

    def _settle(self, batch: list[Call]) -> None:
        for call in batch:
            self._on_loop(self.costs.write, partial(self._write, call))

    def _write(self, call: Call) -> None:
        self.outstanding -= 1
        call.answered = self.env.now
        call.answers += 1
        call.done.succeed()

    def _pause(self, pauses: Pauses) -> Steps:
        while True:
            yield self.env.timeout(self.draw.expovariate(1 / pauses.every))
            for part in (self._interpreter, self._kernels):
                part.stand(still=True)
            yield self.env.timeout(pauses.seconds)
            for part in (self._interpreter, self._kernels):
                part.stand(still=False)

    def _drawn(self, mean: float, spread: Sequence[float]) -> float:
        return mean * self.slowness * self.draw.choice(spread)


def chosen(choice: Choice, servers: Sequence[Server], draw: random.Random) -> Server:
    """The server that gets the next request."""
    if choice == "random":
        return draw.choice(servers)
    among = servers if choice == "least" else draw.sample(servers, min(2, len(servers)))
    fewest = min(server.outstanding for server in among)
    return draw.choice([server for server in among if server.outstanding == fewest])
