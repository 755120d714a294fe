"""The processor time of a server's threads, and of everybody else on the machine."""

import os
from pathlib import Path


class Threads:
    """The processor time of a server's worker, and of all its other threads."""

    def __init__(self, process: int) -> None:
        """Finds the worker of a server that has just started.

        Args:
            process: the server's id.
        """
        self._tasks = Path(f"/proc/{process}/task")
        taken = self._taken()
        del taken[process]
        # It has computed every mapping once; no other thread but the first has done anything yet.
        self._worker = max(taken, key=taken.__getitem__)

    def seconds(self) -> tuple[float, float]:
        """Of the worker, and of all others, so far."""
        taken = self._taken()
        worker = taken.pop(self._worker)
        return worker, sum(taken.values())

    def _taken(self) -> dict[int, float]:
        return {
            int(task.name): int((task / "schedstat").read_text().split()[0]) / 1e9
            for task in self._tasks.iterdir()
        }


def machine_seconds() -> float:
    """Processor time that anybody on this machine has taken (seconds)."""
    name, *ticks = Path("/proc/stat").read_text().partition("\n")[0].split()
    assert name == "cpu"
    user, nice, system, _, _, interrupts, soft, *_ = map(int, ticks)
    return (user + nice + system + interrupts + soft) / os.sysconf("SC_CLK_TCK")
