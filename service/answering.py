"""The one line from a request's body to its answer: decode, submit, encode."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from service.content_encoding import compressed
from service.engine.admission import Place
from service.engine.job import Job
from service.errors import DeadlineExceeded
from service.runtime import Runtime
from service.stages import Stage
from service.wire.exchange import Encoded, Exchange


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer, ready to be sent.

    Attributes:
        body: what to send.
        stages: decode, queue, compute and encode, in this order.
    """

    body: Encoded
    stages: tuple[Stage, ...]


async def answer(
    runtime: Runtime,
    exchange: Exchange,
    body: bytearray,
    place: Place,
    *,
    arrived: float,
    deadline: float | None = None,
    coding: str | None = None,
    decoded: Callable[[Job], None] = lambda job: None,
) -> Answered:
    """Answers a body on its wire, with or without HTTP around it.

    Args:
        runtime: the server's.
        exchange: the request's.
        body: the request's.
        place: the request's; holds what the request takes, step by step.
        arrived: when the request came (seconds of time.monotonic).
        deadline: when the answer is due (seconds of time.monotonic); None: whenever.
        coding: what the answer's body is to be compressed in; None: nothing.
        decoded: is told the job as soon as it is known.

    Raises:
        DeadlineExceeded: the time is up, by `deadline` or by what the body says.
        ProbmapError: the request asks for what cannot be, or for more than there is room for.
    """
    size = len(body) + exchange.beside_bytes
    job: Job | None = None
    stages: tuple[Stage, ...] = ()
    try:
        async with asyncio.timeout_at(_on_loop(deadline)) as limit:
            started = time.monotonic()
            job = await runtime.transcode(size, partial(exchange.decode, body))
            del body
            decode = Stage("decode", started, time.monotonic() - started)
            decoded(job)
            if exchange.timeout_seconds is not None:
                given = arrived + exchange.timeout_seconds
                deadline = given if deadline is None else min(given, deadline)
                limit.reschedule(_on_loop(deadline))
            place.hold(job.bytes, job.rows)
            started = time.monotonic()
            completed = await runtime.engine.submit(job, deadline)
            runtime.metrics.computed(job.request.mapping.name, completed)
            queue = Stage("queue", started, completed.queue_seconds)
            begun = started + completed.queue_seconds
            compute = Stage("compute", begun, completed.compute_seconds)
            started = time.monotonic()
            evaluation = completed.evaluation
            estimate = exchange.answer_bytes(job, evaluation)
            place.settle(job.answer_bytes + estimate)
            encoded = await runtime.transcode(estimate, partial(exchange.encode, job, evaluation))
            if coding is not None:
                encoded = await runtime.transcode(
                    encoded.size, partial(compressed, encoded, coding)
                )
            place.settle(encoded.size)
            encode = Stage("encode", started, time.monotonic() - started)
            stages = (decode, queue, compute, encode)
            return Answered(encoded, stages)
    except TimeoutError:
        raise DeadlineExceeded from None
    finally:
        if job is not None:
            runtime.statistics.count(job, time.monotonic() - arrived, stages)


def _on_loop(moment: float | None) -> float | None:
    """A time of time.monotonic as one of the event loop's clock."""
    if moment is None:
        return None
    return asyncio.get_running_loop().time() + moment - time.monotonic()
