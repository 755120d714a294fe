"""The simulated fleet keeps the laws of queues that are known in closed form."""

import math
import random
import statistics

import pytest
import simpy

from arrivals import Asking, Figures, figures_of, quantile_of
from fleet import Call, Choice, Costs, Pauses, Server, chosen
from shared_processor import Shared

SERVICE = 0.01
"""Of one request (seconds)."""

CALLS = 25_000

EXPONENTIAL = [-math.log(1 - (place + 0.5) / 10_000) for place in range(10_000)]
"""An exponential distribution of mean 1, by its quantiles."""


MIXED = Costs(
    read=0.001,
    write=0.001,
    settle=0.0005,
    wake=0.0001,
    batch=SERVICE,
    row=0.001,
    kernel_batch=0.001,
    kernel_row=0.001,
    weight=0.2,
    host_spread=EXPONENTIAL,
    worker_spread=EXPONENTIAL,
)
"""A server that spends time on everything there is."""


def asked(
    costs: Costs,
    *,
    rate: float = 0.0,
    callers: int = 0,
    calls: float = CALLS,
    seed: int = 0,
    servers: int = 1,
    choice: Choice = "least",
    pauses: Pauses | None = None,
    slow: int = 0,
    **options: int,
) -> Asking:
    """A load of about so many requests, simulated to its end."""
    env, draw = simpy.Environment(), random.Random(seed)
    fleet = [
        Server(
            env, draw, costs, slowness=4.0 if place < slow else 1.0, pauses=pauses,
            budget=options.get("budget", 1), classes=options.get("classes", 1),
        )
        for place in range(servers)
    ]  # fmt: skip
    asking = Asking(env, draw, fleet, [], choice, rows=options.get("rows", 1))
    if callers:
        asking.waiting(callers)
        env.run(calls * SERVICE)
        return asking
    until = calls / rate
    asking.steady(rate, until)
    env.run(until * 1.2 + 10)
    return asking


def mean_wait(asking: Asking) -> float:
    """From a request's making until its computation begins."""
    return statistics.fmean(call.computed - call.born for call in asking.calls)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_one_at_a_time_with_equal_times_waits_as_m_d_1(load: float) -> None:
    # Pollaczek and Khinchine: ρ s / 2(1 − ρ).
    asking = asked(Costs(batch=SERVICE), rate=load / SERVICE)
    assert mean_wait(asking) == pytest.approx(load * SERVICE / (2 * (1 - load)), rel=0.06)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_one_at_a_time_with_exponential_times_waits_as_m_m_1(load: float) -> None:
    asking = asked(Costs(batch=SERVICE, worker_spread=EXPONENTIAL), rate=load / SERVICE)
    assert mean_wait(asking) == pytest.approx(load * SERVICE / (1 - load), rel=0.1)
    # The time in an M/M/1 is exponential of mean s / (1 − ρ): 99 of 100 within ln 100 times it.
    p99 = quantile_of([call.seconds for call in asking.calls], 0.99)
    assert p99 == pytest.approx(math.log(100) * SERVICE / (1 - load), rel=0.15)


@pytest.mark.parametrize("load", [0.3, 0.8])
def test_the_event_loop_is_a_queue_of_its_own(load: float) -> None:
    # An M/D/1, whatever the passes it works in.
    asking = asked(Costs(write=SERVICE), rate=load / SERVICE, budget=1000)
    mean = statistics.fmean(call.seconds for call in asking.calls)
    assert mean == pytest.approx(SERVICE * (1 + load / (2 * (1 - load))), rel=0.06)


def test_what_the_loop_reads_in_one_pass_is_computed_together() -> None:
    # 16 at once, and reading takes longer than computing: none goes before the last is read.
    env = simpy.Environment()
    server = Server(env, random.Random(0), Costs(read=SERVICE, row=SERVICE / 100), budget=100)
    for _ in range(16):
        server.take(Call(1, 0.0, env.event()))
    env.run(1.0)
    assert server.batches == [16]


def test_who_shares_a_processor_is_there_as_long_as_in_m_g_1_ps() -> None:
    # Mean s / (1 − ρ), whatever the distribution of the work; here it is constant.
    env, draw = simpy.Environment(), random.Random(1)
    shared, load = Shared(env), 0.7
    taken: list[float] = []

    def piece() -> simpy.events.ProcessGenerator:
        started = env.now
        yield shared.work(SERVICE)
        taken.append(env.now - started)

    def arriving() -> simpy.events.ProcessGenerator:
        while len(taken) < CALLS:
            yield env.timeout(draw.expovariate(load / SERVICE))
            env.process(piece())

    env.process(arriving())
    env.run()
    assert statistics.fmean(taken) == pytest.approx(SERVICE / (1 - load), rel=0.06)


def test_two_who_share_take_twice_as_long_until_one_is_done() -> None:
    env = simpy.Environment()
    shared = Shared(env)
    ended: dict[str, float] = {}

    def piece(name: str, after: float, seconds: float) -> simpy.events.ProcessGenerator:
        yield env.timeout(after)
        yield shared.work(seconds)
        ended[name] = env.now

    env.process(piece("long", 0.0, 3.0))
    env.process(piece("short", 1.0, 1.0))
    env.run()
    assert ended == pytest.approx({"short": 3.0, "long": 4.0})


def test_who_has_a_small_weight_waits_for_the_others() -> None:
    env = simpy.Environment()
    shared = Shared(env)
    ended: dict[str, float] = {}

    def piece(name: str, seconds: float, weight: float) -> simpy.events.ProcessGenerator:
        yield shared.work(seconds, weight)
        ended[name] = env.now

    env.process(piece("worker", 1.0, 0.25))
    env.process(piece("loop", 2.0, 1.0))
    env.run()
    # The loop has four fifths of the time: 2 s of it take 2.5, in which the worker has 0.5.
    assert ended == pytest.approx({"loop": 2.5, "worker": 3.0})


@pytest.mark.parametrize("load", [0.25, 0.75])
def test_the_worker_is_busy_for_the_share_that_is_asked_of_it(load: float) -> None:
    asking = asked(Costs(batch=SERVICE), rate=load / SERVICE)
    last = max(call.answered for call in asking.calls)
    assert asking.servers[0].busy / last == pytest.approx(load, rel=0.02)


@pytest.mark.parametrize("choice", ["least", "two", "random"])
@pytest.mark.parametrize("pauses", [None, Pauses(every=0.5, seconds=0.1)], ids=["", "pauses"])
def test_every_request_is_answered_once(choice: Choice, pauses: Pauses | None) -> None:
    asking = asked(
        MIXED, rate=200, calls=3000, servers=3, choice=choice, pauses=pauses, slow=1, budget=16
    )
    assert {call.answers for call in asking.calls} == {1}
    assert sum(sum(server.batches) for server in asking.servers) == len(asking.calls) > 2500
    assert all(call.born < call.computed < call.answered for call in asking.calls)
    assert {server.outstanding for server in asking.servers} == {0}


@pytest.mark.parametrize(
    ("rows", "classes", "budget", "most"), [(1, 10, 160, 16), (3, 10, 160, 15), (9, 100, 160, 9)]
)
def test_a_full_batch_holds_what_the_budget_allows_and_one_request_at_least(
    rows: int, classes: int, budget: int, most: int
) -> None:
    costs = Costs(batch=SERVICE)
    asking = asked(costs, callers=64, calls=500, rows=rows, classes=classes, budget=budget)
    assert max(asking.servers[0].batches) == most
    # The callers are always more than a batch holds: every batch but the first is full.
    assert set(asking.servers[0].batches[1:]) == {most}


@pytest.mark.parametrize(("callers", "groups"), [(1, 1), (8, 2), (64, 2)])
def test_waiting_callers_are_computed_together(callers: int, groups: int) -> None:
    # The first to come is computed alone, and the others meanwhile wait: two groups take turns,
    # and a round of both is a second time a, and b for every row.
    costs = Costs(batch=SERVICE, row=SERVICE / 10)
    asking = asked(costs, callers=callers, calls=2000, budget=1000)
    found = figures_of(asking, 5.0, 15.0, asking.servers[0].batches)
    each = groups * SERVICE + callers * SERVICE / 10
    assert found.batch == pytest.approx(callers / groups, rel=0.02)
    assert (found.rate, found.median) == pytest.approx((callers / each, each), rel=0.02)


def test_work_under_one_interpreter_takes_as_long_as_both_halves() -> None:
    # Always somebody to read and always a batch to compute: one processor's time, all of it used.
    # The loop's weight is the worker's: neither waits for the other for long.
    costs = Costs(read=SERVICE, batch=SERVICE)
    asking = asked(costs, callers=64, calls=4000, budget=1)
    found = figures_of(asking, 10.0, 40.0, asking.servers[0].batches)
    assert found.rate == pytest.approx(1 / (2 * SERVICE), rel=0.02)


def test_a_pause_moves_nothing() -> None:
    costs = Costs(0.001, 0.001, batch=SERVICE / 2, kernel_batch=SERVICE / 2)
    calm = asked(costs, callers=1, calls=3000)
    paused = asked(costs, callers=1, calls=3000, pauses=Pauses(every=1.0, seconds=1.0))
    # Half of the time is gone.
    assert len(paused.calls) / len(calm.calls) == pytest.approx(0.5, abs=0.12)
    # A request takes what it takes, and the pauses that it meets.
    beyond = {round(one.seconds % 1.0, 6) for one in paused.calls if one.answers}
    assert beyond == {round(calm.calls[0].seconds, 6)}


def test_one_seed_gives_one_run() -> None:
    def run(seed: int) -> tuple[Figures, list[float]]:
        asking = asked(MIXED, rate=300, calls=2000, servers=4, choice="two", seed=seed, budget=32)
        batches = [rows for server in asking.servers for rows in server.batches]
        return figures_of(asking, 1.0, 6.0, batches), [call.answered for call in asking.calls]

    assert run(3) == run(3)
    assert run(3) != run(4)


def test_who_has_the_fewest_gets_the_request() -> None:
    env, draw = simpy.Environment(), random.Random(0)
    servers = [Server(env, draw, Costs(batch=SERVICE)) for _ in range(4)]
    for place, count in enumerate((3, 1, 2, 1)):
        for _ in range(count):
            servers[place].take(Call(1, 0.0, env.event()))
    assert {servers.index(chosen("least", servers, draw)) for _ in range(100)} == {1, 3}
    # The one that has the most is the lesser of no two.
    assert {servers.index(chosen("two", servers, draw)) for _ in range(200)} == {1, 2, 3}
    assert {servers.index(chosen("random", servers, draw)) for _ in range(200)} == {0, 1, 2, 3}


def test_the_fewest_spares_callers_a_slow_server() -> None:
    # Drawn blindly, a quarter of the requests meet the one of four that takes four times as long.
    costs = Costs(batch=SERVICE)
    found = {
        choice: quantile_of(
            [
                call.seconds
                for call in asked(
                    costs, rate=80, calls=8000, servers=4, choice=choice, slow=1
                ).calls
            ],
            0.9,
        )
        for choice in ("random", "two", "least")
    }
    assert found["least"] <= found["two"] < found["random"] / 2
