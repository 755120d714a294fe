"""The stages that a request takes on its way to its answer."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from service.engine.job import Completed, Job

StageName = Literal["decode", "queue", "compute", "encode"]


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage.

    Attributes:
        name: which one.
        started: when it began (seconds of time.monotonic).
        seconds: how long it took.
    """

    name: StageName
    started: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks for, in a few words: its connection keeps them longer than its logits.

    Attributes:
        mapping: the mapping's name.
        rows: of logits (a count).
        classes: of the longest row (a count).
    """

    mapping: str
    rows: int
    classes: int


@dataclass(slots=True)
class Progress:
    """How far a request has come; what is known of it when it fails.

    Attributes:
        arrived: when it came (seconds of time.monotonic).
        asked: what it asks for; None: it is not read yet.
        stages: those that are over, in order; one that failed too.
        is_answered: whether its answer is written.
    """

    arrived: float
    asked: Asked | None = None
    stages: list[Stage] = field(default_factory=list)
    is_answered: bool = False

    @contextmanager
    def stage(self, name: StageName) -> Iterator[None]:
        """Notes how long something takes, however it ends."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.stages.append(Stage(name, started, time.monotonic() - started))

    def read(self, job: Job) -> None:
        """Notes what it asks for."""
        self.asked = Asked(job.request.mapping.name, job.rows, job.classes)

    def computed(self, submitted: float, completed: Completed) -> None:
        """Notes how long the computation waited and took.

        Args:
            submitted: when it was handed to the engine (seconds of time.monotonic).
            completed: what came of it.
        """
        waited, took = completed.queue_seconds, completed.compute_seconds
        self.stages.append(Stage("queue", submitted, waited))
        self.stages.append(Stage("compute", submitted + waited, took))
