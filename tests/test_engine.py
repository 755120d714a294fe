"""The engine: whatever else is asked at the same time, a job gets what it gets alone."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from typing import Any, TypeVar

import pytest
import torch

from answers import every_bit
from faults import MARK, MOST_ROWS, install
from mappings.errors import ProbmapError
from mappings.evaluate import in_steps
from mappings.evaluation import Evaluation
from mappings.registry import MAPPINGS
from random_jobs import random_job
from schemas.read import read_request
from schemas.request import MapRequest
from service.engine.batch import Batch, Entry
from service.engine.engine import Engine, WorkerLost, run
from service.engine.job import Completed, Job
from service.engine.queue import Budget, Queue
from service.errors import NotReady, OutOfMemory
from service.settings import Settings

CPU = torch.device("cpu")
T = TypeVar("T")
Outcome = Completed | BaseException


@pytest.fixture(autouse=True, scope="module")
def faulty() -> Iterator[None]:
    """A registry that has the faulty mapping."""
    install()
    yield
    del MAPPINGS["faulty"]


def job(rows: int = 1, classes: int = 4, mark: int | None = None, **body: Any) -> Job:
    """A job of different rows, of which one may be marked."""
    values = torch.arange(rows * classes, dtype=torch.float64).reshape(rows, classes).sin()
    if mark is not None:
        values[mark, 0] = MARK
    request = read_request(MapRequest, {"mapping": "softmax", **body}, widths=[classes] * rows)
    return Job(values, request)


def faulty_job(fault: str, mark: int | None = None, rows: int = 1, **fields: Any) -> Job:
    """A job of the faulty mapping."""
    return job(rows, mark=mark, mapping={"name": "faulty", "fault": fault, **fields})


def with_engine(use: Callable[[Engine], Awaitable[T]], **settings: Any) -> T:
    """What comes of using an engine that is ready."""

    async def used() -> T:
        engine = Engine(Settings(device="cpu", **settings))
        engine.start()
        await until(lambda: engine.is_ready)
        try:
            return await use(engine)
        finally:
            assert await engine.close()

    return asyncio.run(used())


async def until(claim: Callable[[], bool]) -> None:
    """Waits until a claim holds."""
    async with asyncio.timeout(20):
        while not claim():
            await asyncio.sleep(0.01)


async def outcomes(engine: Engine, jobs: list[Job]) -> list[Outcome]:
    """What becomes of jobs that come at the same time."""
    return await asyncio.gather(*map(engine.submit, jobs), return_exceptions=True)


def alone(asked: Job) -> dict[str, bytes] | str:
    """Every bit of a job's answer when nothing else is there, or the code of its error."""
    try:
        return every_bit(run(asked, CPU).evaluation)
    except ProbmapError as error:
        return f"{error.code}: {error.detail}"


def told(outcome: Outcome) -> dict[str, bytes] | str:
    """As `alone`, of an outcome."""
    if isinstance(outcome, Completed):
        return every_bit(outcome.evaluation)
    return f"{outcome.code}: {outcome.detail}" if isinstance(outcome, ProbmapError) else "?"


@pytest.mark.parametrize("seed", range(12))
def test_random_jobs_get_bit_for_bit_what_they_get_alone(seed: int) -> None:
    chance = random.Random(seed)
    jobs = [random_job(chance) for _ in range(60)]
    # Copies share batches for certain, and some of all are never waited for.
    jobs += chance.choices(jobs, k=60)
    leaving = set(chance.sample(range(len(jobs)), 20))
    faults = [faulty_job(name, mark=0) for name in ("error", "memory", "exit")] * 2
    faults += [faulty_job(name) for name in ("error", "memory", "exit")] * 2

    async def use(engine: Engine) -> list[Outcome]:
        tasks = []
        for place, asked in enumerate([*jobs, *faults]):
            tasks.append(asyncio.ensure_future(engine.submit(asked)))
            if chance.random() < 0.1:
                await asyncio.sleep(chance.choice([0, 0.001, 0.01]))
            if place in leaving:
                asyncio.get_running_loop().call_later(chance.random() / 50, tasks[-1].cancel)
        return await asyncio.gather(*tasks, return_exceptions=True)

    budget = {"max_batch_elements": chance.choice([1, 200, 1 << 22])}
    found = with_engine(use, **budget, max_delay_ms=chance.choice([0, 0, 2]))
    for place, (asked, outcome) in enumerate(zip(jobs, found, strict=False)):
        if place in leaving and isinstance(outcome, asyncio.CancelledError):
            continue
        assert told(outcome) == alone(asked), asked.request
    for asked, outcome in zip(faults, found[len(jobs) :], strict=True):
        marked = bool((asked.logits == MARK).any())
        assert isinstance(outcome, OutOfMemory | RuntimeError if marked else Completed)


def test_jobs_that_agree_are_computed_together() -> None:
    batches: list[Batch] = []

    async def use(engine: Engine) -> list[Outcome]:
        return await outcomes(engine, [job(2, temperature=1 + n) for n in range(50)])

    async def used() -> None:
        engine = Engine(Settings(device="cpu"), batches.append)
        engine.start()
        assert all(isinstance(one, Completed) for one in await use(engine))
        await engine.close()

    asyncio.run(used())
    assert sum(batch.rows for batch in batches) == 100
    assert len(batches) <= 3


def test_a_batch_of_one_job_uses_its_logits_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[torch.Tensor] = []

    def noted(logits: torch.Tensor, *rest: Any, **more: Any) -> Generator[int, None, Evaluation]:
        given.append(logits)
        return in_steps(logits, *rest, **more)

    monkeypatch.setattr("service.engine.batch.in_steps", noted)
    asked = job(3)
    run(asked, CPU)
    assert given[0] is asked.logits


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ({"temperature": 2.0}, True),
        ({"processors": [{"name": "top_k", "k": 1}]}, False),
        ({"outputs": ["entropy"]}, False),
        ({"dtype": "float32"}, False),
        ({"mapping": "sparsemax"}, False),
        ({"support_limit": 2}, False),
        ({"invalid_rows": "report"}, True),
    ],
)
def test_what_jobs_must_agree_on(change: dict[str, Any], kept: bool) -> None:
    assert (job().batch_key() == job(**change).batch_key()) is kept


def test_chains_of_the_same_steps_share_a_batch_whatever_their_values() -> None:
    keys = {
        job(processors=[{"name": "top_k", "k": k}, {"name": "min_p", "ratio": k / 10}]).batch_key()
        for k in (1, 2, 3)
    }
    assert len(keys) == 1


@pytest.mark.parametrize("fault", ["error", "exit"])
@pytest.mark.parametrize("place", [0, 3, 7])
def test_a_failure_is_the_culprits_alone(fault: str, place: int) -> None:
    jobs = [faulty_job(fault, mark=0 if n == place else None) for n in range(8)]

    async def use(engine: Engine) -> list[Outcome]:
        first = await outcomes(engine, jobs)
        assert engine.is_ready
        return first

    found = with_engine(use)
    assert [isinstance(one, Completed) for one in found] == [n != place for n in range(8)]


def test_what_does_not_fit_together_is_computed_in_parts() -> None:
    jobs = [faulty_job("small_memory", rows=rows) for rows in (1, MOST_ROWS, 1, 2 * MOST_ROWS, 1)]
    found = with_engine(lambda engine: outcomes(engine, jobs))
    wanted = [
        every_bit(run(job(rows), CPU).evaluation) for rows in (1, MOST_ROWS, 1, 2 * MOST_ROWS, 1)
    ]
    assert [told(one) for one in found] == wanted


def test_only_the_row_that_fits_nowhere_is_refused_for_want_of_memory() -> None:
    jobs = [faulty_job("memory", mark=1 if n == 2 else None, rows=2) for n in range(5)]
    found = with_engine(lambda engine: outcomes(engine, jobs))
    assert isinstance(found[2], OutOfMemory)
    assert [isinstance(one, Completed) for one in found] == [n != 2 for n in range(5)]


def test_small_jobs_go_between_the_parts_of_a_long_one() -> None:
    long = faulty_job("slow", rows=1, seconds=0.03)
    slow = Job(torch.zeros(60, 1 << 18, dtype=torch.float32), long.request)

    async def use(engine: Engine) -> tuple[list[float], bool]:
        lasting = asyncio.ensure_future(engine.submit(slow))
        await asyncio.sleep(0.1)
        seconds = []
        for _ in range(5):
            started = time.monotonic()
            await engine.submit(job())
            seconds.append(time.monotonic() - started)
        still_running = not lasting.done()
        await lasting
        return seconds, still_running

    seconds, still_running = with_engine(use)
    # The long one takes 60 steps of at least 30 ms.
    assert still_running
    assert max(seconds) < 1.0


def test_a_long_job_is_not_starved_by_small_ones() -> None:
    long = faulty_job("slow", rows=1, seconds=0.01)
    slow = Job(torch.zeros(10, 1 << 18, dtype=torch.float32), long.request)

    async def use(engine: Engine) -> bool:
        lasting = asyncio.ensure_future(engine.submit(slow))
        ending = time.monotonic() + 20
        while not lasting.done() and time.monotonic() < ending:
            await asyncio.gather(*(engine.submit(job(temperature=1 + n)) for n in range(20)))
        return lasting.done()

    assert with_engine(use)


def test_nothing_is_computed_for_who_left_while_waiting() -> None:
    batches: list[Batch] = []

    async def used() -> None:
        engine = Engine(Settings(device="cpu"), batches.append)
        engine.start()
        busy = asyncio.ensure_future(engine.submit(faulty_job("slow", seconds=0.3)))
        await asyncio.sleep(0.1)
        while engine.queue.rows > 0:  # On a busy machine a worker takes a while to begin.
            await asyncio.sleep(0.001)
        waiting = [asyncio.ensure_future(engine.submit(job())) for _ in range(9)]
        await asyncio.sleep(0.05)
        for task in waiting[:5]:
            task.cancel()
        await asyncio.sleep(0)
        assert engine.queue.rows == 4
        await asyncio.gather(busy, *waiting[5:])
        assert engine.queue.rows == 0
        await engine.close()

    asyncio.run(used())
    assert sum(batch.rows for batch in batches) == 1 + 4


def test_a_computation_that_nobody_waits_for_ends_between_two_steps() -> None:
    long = faulty_job("slow", rows=1, seconds=0.02)
    slow = Job(torch.zeros(500, 1 << 18, dtype=torch.bfloat16), long.request)

    async def use(engine: Engine) -> float:
        lasting = asyncio.ensure_future(engine.submit(slow))
        await asyncio.sleep(0.1)
        lasting.cancel()
        started = time.monotonic()
        await engine.submit(job())
        return time.monotonic() - started

    # All of its steps would take 10 seconds.
    assert with_engine(use) < 2


def test_what_is_late_is_not_computed() -> None:
    batches: list[Batch] = []

    async def used() -> list[Outcome]:
        engine = Engine(Settings(device="cpu"), batches.append)
        engine.start()
        busy = asyncio.ensure_future(engine.submit(faulty_job("slow", seconds=0.3)))
        await asyncio.sleep(0.1)
        limits = [0.05, 0.05, None, None]
        late = [asyncio.wait_for(engine.submit(job()), limit) for limit in limits]
        found = await asyncio.gather(*late, return_exceptions=True)
        await busy
        await engine.close()
        return found

    found = asyncio.run(used())
    assert [type(one) for one in found] == [TimeoutError] * 2 + [Completed] * 2
    assert sum(batch.rows for batch in batches) == 1 + 2


def test_a_dead_worker_is_replaced_once() -> None:
    async def use(engine: Engine) -> None:
        for _ in range(2):
            await engine.submit(faulty_job("death", mark=0))
            await asyncio.sleep(0.1)
            assert not engine.is_ready
            await until(lambda: engine.is_ready or engine.is_beyond_repair)
            assert engine.restarts == 1
            if engine.is_beyond_repair:
                break
            assert isinstance(await engine.submit(job()), Completed)
        assert engine.is_beyond_repair
        with pytest.raises(NotReady):
            await engine.submit(job())

    with_engine(use)


def test_everybody_in_line_is_answered_when_the_last_worker_is_lost() -> None:
    async def use(engine: Engine) -> list[Outcome]:
        await engine.submit(faulty_job("death", mark=0))
        await until(lambda: engine.restarts == 1 and engine.is_ready)
        await engine.submit(faulty_job("death", mark=0))
        return await asyncio.wait_for(outcomes(engine, [job() for _ in range(5)]), 10)

    assert [type(one) for one in with_engine(use)] == [NotReady] * 5


def test_a_worker_that_stands_still_is_given_up() -> None:
    async def used() -> tuple[Outcome, Outcome]:
        engine = Engine(Settings(device="cpu", stall_seconds=2.0))
        engine.start()
        await until(lambda: engine.is_ready)
        stuck, other = faulty_job("sleep", mark=0, seconds=8.0), job()
        first = (await outcomes(engine, [stuck]))[0]
        second = (await outcomes(engine, [other]))[0]
        await engine.close()
        return first, second

    first, second = asyncio.run(used())
    assert isinstance(first, WorkerLost)
    assert isinstance(second, Completed)


def entries(*sizes: int) -> list[Entry]:
    """Jobs of so many rows of four classes."""
    return [Entry(job(rows)) for rows in sizes]


def test_the_line_gives_the_oldest_first_and_fills_up_with_its_kind() -> None:
    queue = Queue(Budget(elements=20, bytes=1 << 30))
    others = [Entry(job(1, classes=5)), Entry(job(1, classes=5))]
    kind = entries(1, 2, 1, 3)
    queue.add([kind[0], others[0], kind[1], kind[2], others[1], kind[3]])
    assert queue.rows == 9
    # 1 + 2 + 1 rows are 16 logits; 3 more rows would be 28.
    assert [queue.take(0), queue.take(0), queue.take(0), queue.take(0)] == [
        kind[:3], others, kind[3:], None,
    ]  # fmt: skip
    assert queue.rows == 0


def test_a_job_above_the_budget_goes_alone() -> None:
    queue = Queue(Budget(elements=8, bytes=1 << 30))
    small, large = entries(1), entries(30)
    queue.add([*small, *large])
    assert [queue.take(0), queue.take(0)] == [small, large]


def test_the_budget_counts_the_memory_of_the_answers() -> None:
    body: dict[str, Any] = {"outputs": ["jacobian"], "jacobian": {"form": "dense"}}
    wide = [Entry(job(1, classes=100, **body)) for _ in range(4)]
    # A dense Jacobian of 100 classes takes 80,000 bytes.
    queue = Queue(Budget(elements=1 << 20, bytes=170_000))
    queue.add(wide)
    assert [queue.take(0), queue.take(0)] == [wide[:2], wide[2:]]


def test_the_line_may_wait_for_more_but_not_when_the_budget_is_full() -> None:
    queue = Queue(Budget(elements=8, bytes=1 << 30, delay=0.2))
    one = entries(1)
    queue.add(one)
    started = time.monotonic()
    assert queue.take(0.05) is None
    assert queue.take(5) == one
    assert 0.15 < time.monotonic() - started < 2
    full = entries(1, 1)
    queue.add(full)
    assert queue.take(0) == full
