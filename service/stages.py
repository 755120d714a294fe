"""The stages that a request takes on its way to its answer."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage.

    Attributes:
        name: decode, queue, compute or encode.
        started: when it began (seconds of time.monotonic).
        seconds: how long it took.
    """

    name: str
    started: float
    seconds: float
