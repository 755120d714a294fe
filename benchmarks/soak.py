"""Ten minutes of everything at once, against one server: does it stay whole, and as large?

    python benchmarks/soak.py [--seconds 600]

What is asked is in benchmarks/mixture.py. Answers are compared with those of the server when it had
nothing else to do, to the bit. The exit code is 1 when an answer was a 5xx or none, or not what
was due, when the memory grew, or when the server did not end well. Run it with PYTHONPATH=.:tests.

The first quarter warms up. Memory is then looked at in two ways: at rest, when free memory went
back to the system, after the first quarter and at the end, which shows what is never freed; and
under load, whose plateau shows only after a few minutes, as the heap keeps what was freed.
"""

import argparse
import asyncio
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from load import Answer, Callers, Reply, quantile
from mixture import Ask, Kind, mixture
from server import RunningServer, metric, running_server

SECONDS = 600.0
SHOWN_EVERY = 30.0
"""How often the memory is printed (seconds)."""

GROWTH = 1.05
"""The memory under load of the last quarter over that of the second, at most (dimensionless)."""

PLATEAU_SECONDS = 120.0
"""Whatever is shorter says nothing about a plateau (seconds)."""

GROWTH_AT_REST = 1.1
"""The memory at rest at the end over that after the first quarter, at most (dimensionless)."""

REST_SECONDS = 4.0
"""After such a time without requests free memory has gone back to the system (seconds)."""

LEAVE_WITHIN = 0.2
"""How long those who leave wait at most (seconds)."""

console = Console()


@dataclass
class Soak:
    """A load and what came of it.

    Attributes:
        until: when nothing more is asked (seconds of time.perf_counter).
        answers: by kind; of those that leave, none.
        left: callers who left (a count).
        differing: answers that were not what the server said when it had nothing else to do.
        undue: what came instead of the status that was due, by kind: (due, came).
        memory: the server's, each second since the first quarter (bytes).
        at_rest: the server's after the first quarter, and at the end (bytes).
    """

    server: RunningServer
    until: float = 0.0
    answers: dict[str, list[Answer]] = field(default_factory=dict)
    left: int = 0
    differing: Counter[str] = field(default_factory=Counter)
    undue: Counter[tuple[str, int, int]] = field(default_factory=Counter)
    memory: list[int] = field(default_factory=list)
    at_rest: list[int] = field(default_factory=list)

    def run(self, kinds: Sequence[Kind], seconds: float) -> None:
        """Asks everything at once for so long, with a rest after the first quarter."""
        for part in (0.25, 0.75):
            self.memory.clear()
            asyncio.run(self._load(kinds, part * seconds))
            time.sleep(REST_SECONDS)
            self.at_rest.append(self.server.resident_bytes())
            console.print(f"at rest   RSS {self.at_rest[-1] / 1e6:6.0f} MB")

    async def _load(self, kinds: Sequence[Kind], seconds: float) -> None:
        """Asks everything once, one after the other, and then everything at once."""
        alone = {kind.name: await self._alone(kind) for kind in kinds if not kind.leaves}
        self.until = time.perf_counter() + seconds
        draws = random.Random(len(self.at_rest))
        tasks = [self._watched(seconds)]
        for kind in kinds:
            callers = Callers(self.server.port)
            callers.answers = self.answers.setdefault(kind.name, [])
            for _ in range(kind.callers):
                draw = random.Random(draws.random())
                if kind.leaves:
                    tasks.append(self._leaves(kind, draw))
                else:
                    tasks.append(self._asks(kind, callers, draw, alone[kind.name]))
        await asyncio.gather(*tasks)

    async def _alone(self, kind: Kind) -> list[Reply]:
        callers = Callers(self.server.port)
        found = [await callers.call(ask.request) for ask in kind.asks]
        callers.close()
        return found

    async def _asks(
        self, kind: Kind, callers: Callers, draw: random.Random, alone: Sequence[Reply]
    ) -> None:
        """One caller, who waits for each answer."""
        while time.perf_counter() < self.until:
            place = draw.randrange(len(kind.asks))
            self.compare(
                kind, kind.asks[place], await callers.call(kind.asks[place].request), alone[place]
            )
            await asyncio.sleep(draw.expovariate(1 / kind.pause))

    def compare(self, kind: Kind, ask: Ask, reply: Reply, alone: Reply) -> None:
        """Notes what is wrong with an answer, given that of the server when it was idle."""
        if reply.status != ask.status:
            self.undue[kind.name, ask.status, reply.status] += 1
        elif reply.status == 200 and ask.repeats and reply.body != alone.body:
            self.differing[kind.name] += 1

    async def _leaves(self, kind: Kind, draw: random.Random) -> None:
        """One caller, who breaks connections off, some of them before all is sent."""
        while time.perf_counter() < self.until:
            request = draw.choice(kind.asks).request
            _, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
            writer.write(request[: draw.choice((len(request), len(request) // 2))])
            await asyncio.sleep(draw.uniform(0, LEAVE_WITHIN))
            writer.transport.abort()
            self.left += 1
            await asyncio.sleep(draw.expovariate(1 / kind.pause))

    async def _watched(self, seconds: float) -> None:
        """Notes the memory each second, and prints it now and then."""
        shown = 0.0
        while (left := self.until - time.perf_counter()) > 0:
            self.memory.append(self.server.resident_bytes())
            if seconds - left >= shown:
                made = sum(len(answers) for answers in self.answers.values())
                console.print(
                    f"{seconds - left:5.0f} s  RSS {self.memory[-1] / 1e6:6.0f} MB"
                    f"  {made:,} answers"
                )
                shown += SHOWN_EVERY
            await asyncio.sleep(1)


def growth(memory: Sequence[int]) -> float:
    """The median memory of the last third over that of the first."""
    third = len(memory) // 3
    assert third, "too short to say whether memory grows"
    return statistics.median(memory[-third:]) / statistics.median(memory[:third])


def show_answers(soak: Soak, seconds: float) -> None:
    """Prints the answers by kind and status."""
    statuses = sorted({one.status for answers in soak.answers.values() for one in answers})
    table = Table(title=f"{seconds:.0f} s of everything at once")
    for name in ("", *(str(status or "none") for status in statuses), "p50 (ms)", "p99 (ms)"):
        table.add_column(name, justify="right")
    for kind, answers in soak.answers.items():
        if not answers:
            continue
        counted = Counter(one.status for one in answers)
        # The time of an answer, whatever it was: those of "wrong" are refusals.
        alike = [Answer(0, one.seconds, one.at) for one in answers]
        times = (f"{1e3 * quantile(alike, 0, share):.1f}" for share in (0.5, 0.99))
        table.add_row(kind, *(f"{counted[s]:,}" if counted[s] else "" for s in statuses), *times)
    console.print(table)


def faults_of(soak: Soak, seconds: float) -> list[str]:
    """What is wrong with the answers and the memory, a line each; prints how the memory grew."""
    statuses = Counter(one.status for answers in soak.answers.values() for one in answers)
    failed = sum(count for status, count in statuses.items() if status >= 500 or not status)
    found = [f"{failed} answers were a 5xx, or none"] if failed else []
    found += [
        f"{kind}: {count} × {came} where {due} was due"
        for (kind, due, came), count in soak.undue.items()
    ]
    found += [
        f"{kind}: {count} answers differ from what the server says alone"
        for kind, count in soak.differing.items()
    ]
    resting, loaded = soak.at_rest[1] / soak.at_rest[0], growth(soak.memory)
    console.print(f"RSS at rest, end over first quarter: {resting:.3f} × (≤ {GROWTH_AT_REST})")
    wanted = f"≤ {GROWTH}" if seconds >= PLATEAU_SECONDS else "too short for a plateau"
    console.print(f"RSS under load, last quarter over second: {loaded:.3f} × ({wanted})")
    if resting > GROWTH_AT_REST or (seconds >= PLATEAU_SECONDS and loaded > GROWTH):
        found.append("memory grew")
    return found


def main() -> int:
    """Soaks a server; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    seconds = parser.parse_args().seconds
    with running_server("--log-level", "warning") as server:
        soak = Soak(server)
        soak.run(mixture(), seconds)
        show_answers(soak, seconds)
        held = metric(server, "probmap_inflight_requests")
        left = metric(server, "probmap_cancelled_total", reason="disconnected")
        console.print(f"{soak.left:,} callers left; {left:,.0f} of them were noticed at work")
        faults = faults_of(soak, seconds)
        if held:
            faults.append(f"{held:.0f} requests are held that nobody waits for")
        if code := server.stop():
            faults.append(f"the server ended with {code}")
    console.print("\n".join(faults) or "whole", style="red" if faults else "green")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
