"""Who asks a simulated fleet: callers that wait for their answers, or requests at random times."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import simpy

from fleet import Call, Choice, Server, Steps, chosen


@dataclass(slots=True)
class Asking:
    """Requests on their way to servers and back.

    Attributes:
        servers: who answers.
        choice: which of them gets a request.
        call: what a request takes in the callers' own process, which makes one after the other
            (seconds).
        rows: of every request (a count).
        calls: all that were made, in order.
    """

    env: simpy.Environment
    draw: random.Random
    servers: Sequence[Server]
    calls: list[Call]
    choice: Choice = "least"
    call: float = 0.0
    rows: int = 1

    def waiting(self, callers: int) -> None:
        """So many callers, each of whom waits for an answer before the next request."""
        process = simpy.Resource(self.env)
        for _ in range(callers):
            self.env.process(self._again_and_again(process))

    def steady(self, rate: float, until: float, tick: float = 0.0) -> None:
        """So many requests a second on average, at times that know nothing of each other.

        Args:
            rate: requests a second.
            until: when no more are made (seconds).
            tick: what is due within so many seconds is asked at their end, together.
        """
        process = simpy.Resource(self.env)
        self.env.process(self._at_random(rate, until, tick, process))

    def _again_and_again(self, process: simpy.Resource) -> Steps:
        while True:
            made = Call(self.rows, self.env.now, self.env.event())
            self.env.process(self._ask(made, process))
            yield made.done

    def _at_random(self, rate: float, until: float, tick: float, process: simpy.Resource) -> Steps:
        due = 0.0
        while (due := due + self.draw.expovariate(rate)) < until:
            at = math.ceil(due / tick) * tick if tick else due
            if at > self.env.now:
                yield self.env.timeout(at - self.env.now)
            self.env.process(self._ask(Call(self.rows, self.env.now, self.env.event()), process))

    def _ask(self, made: Call, process: simpy.Resource) -> Steps:
        self.calls.append(made)
        with process.request() as turn:
            yield turn
            yield self.env.timeout(self.call)
        chosen(self.choice, self.servers, self.draw).take(made)


@dataclass(frozen=True, slots=True)
class Figures:
    """What a load came to, simulated or measured.

    Attributes:
        rate: requests answered a second.
        batch: rows computed together, on average.
        median: half of the answers came within (seconds).
        p99: 99 of 100 came within (seconds).
    """

    rate: float
    batch: float
    median: float
    p99: float


def quantile_of(seconds: Sequence[float], share: float) -> float:
    """What such a share of the times does not exceed."""
    ordered = sorted(seconds)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def figures_of(asking: Asking, start: float, stop: float, batches: Sequence[int]) -> Figures:
    """The figures of the answers that came between two times, and of some batches."""
    seconds = [one.seconds for one in asking.calls if start <= one.answered < stop]
    mean = sum(batches) / max(len(batches), 1)
    rate = len(seconds) / (stop - start)
    return Figures(rate, mean, quantile_of(seconds, 0.5), quantile_of(seconds, 0.99))
