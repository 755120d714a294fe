"""A simulated processor that several use at once."""

from typing import Any

import simpy


class Shared:
    """A processor whose time all who use it share by their weights."""

    def __init__(self, env: simpy.Environment) -> None:
        self._env = env
        self._left: dict[simpy.Event, float] = {}
        self._weights: dict[simpy.Event, float] = {}
        self._since = 0.0
        self._turn = 0
        self._stands = False

    def stand(self, still: bool) -> None:
        """Stops all work, or lets it go on."""
        self._pass_time()
        self._stands = still
        self._look_ahead()

    def work(self, seconds: float, weight: float = 1.0) -> simpy.Event:
        """Happens when so much of its time was had."""
        self._pass_time()
        done = self._env.event()
        self._left[done], self._weights[done] = seconds, weight
        self._look_ahead()
        return done

    def _pass_time(self) -> None:
        if self._left and not self._stands:
            had = (self._env.now - self._since) / sum(self._weights.values())
            for one, weight in self._weights.items():
                self._left[one] -= had * weight
        self._since = self._env.now

    def _wait(self, one: simpy.Event) -> float:
        """For how long it still takes if nobody comes or goes."""
        return max(self._left[one], 0.0) / self._weights[one] * sum(self._weights.values())

    def _look_ahead(self) -> None:
        self._turn += 1
        if self._left and not self._stands:
            first = min(self._left, key=self._wait)
            coming = self._env.timeout(self._wait(first), (self._turn, first))
            assert coming.callbacks is not None
            coming.callbacks.append(self._finish)

    def _finish(self, event: simpy.Event) -> None:
        plan: Any = event.value
        turn, first = plan
        # Whoever came or went since has made another plan.
        if turn == self._turn:
            self._pass_time()
            del self._left[first], self._weights[first]
            self._look_ahead()
            first.succeed()
