"""A mapping that goes wrong on purpose, and a server that has it: for tests of what is left."""

import sys
import time
from typing import Literal, NoReturn

import torch
from torch import Tensor

from mappings.base import Mapping
from mappings.catalogue.softmax import Softmax
from mappings.parameters import Row
from mappings.registry import MAPPINGS
from mappings.solution import Solution
from service import cli
from service.engine.queue import Queue

MARK = 666.0
"""A first logit of a row that brings its fault about."""

MOST_ROWS = 3
"""Rows that the fault "small_memory" can hold at a time (a count)."""

WARM_UP_SECONDS = 1.0
"""How long a worker warms up that replaces a dead one: who looks now and then sees it."""

Fault = Literal["error", "memory", "small_memory", "exit", "sleep", "death", "slow"]


class Faulty(Mapping):
    """Softmax, with faults that rows can bring about."""

    name: Literal["faulty"] = "faulty"
    fault: Fault = "error"
    """What happens to a batch that has a marked row."""
    seconds: float = 0.0
    """How long "sleep" and "slow" take (seconds)."""

    def solve(self, logits: Tensor, row: Row) -> Solution:
        """Goes wrong where a row says so; is softmax else."""
        if self.fault == "slow":
            time.sleep(self.seconds)
        if self.fault == "small_memory" and logits.shape[0] > MOST_ROWS:
            raise torch.OutOfMemoryError("CUDA out of memory")
        if bool((logits[:, 0] == MARK).any()):
            self._fail()
        return Softmax().solve(logits, row)

    def _fail(self) -> None:
        if self.fault == "error":
            raise RuntimeError("an injected error")
        if self.fault == "memory":
            raise torch.OutOfMemoryError("CUDA out of memory")
        if self.fault == "exit":
            sys.exit("an injected exit")
        if self.fault == "sleep":
            time.sleep(self.seconds)
        if self.fault == "death":
            _die_next_time()


def _die_next_time() -> None:
    """Makes the next worker that looks for work die of it."""
    take = Queue.take

    def die(queue: Queue, timeout: float) -> NoReturn:
        Queue.take = take  # type: ignore[method-assign]
        _warm_up_slowly_next_time()
        raise RuntimeError("an injected death")

    Queue.take = die  # type: ignore[method-assign, assignment]


def _warm_up_slowly_next_time() -> None:
    """Makes the next evaluation of the faulty mapping, which is a warm-up, a slow one."""
    solve = Faulty.solve

    def slowly(self: Faulty, logits: Tensor, row: Row) -> Solution:
        Faulty.solve = solve  # type: ignore[method-assign]
        time.sleep(WARM_UP_SECONDS)
        return solve(self, logits, row)

    Faulty.solve = slowly  # type: ignore[method-assign]


def install() -> None:
    """Registers the faulty mapping in this process."""
    MAPPINGS["faulty"] = Faulty


if __name__ == "__main__":
    install()
    sys.exit(cli.main())
