"""The one line from a request's body to its answer: decode, submit, encode."""

import asyncio
import time
from functools import partial

from service.content_encoding import compressed
from service.engine.admission import Permit
from service.errors import DeadlineExceeded
from service.runtime import Runtime
from service.stages import Progress
from service.wire.exchange import Body, Encoded, Exchange


async def answer(
    runtime: Runtime,
    exchange: Exchange,
    body: Body,
    permit: Permit,
    progress: Progress,
    *,
    deadline: float | None = None,
    coding: str | None = None,
) -> Encoded:
    """Answers a body on its wire, with or without HTTP around it.

    Args:
        runtime: the server's.
        exchange: the request's.
        body: the request's.
        permit: the request's; holds what the request takes, step by step.
        progress: the request's; is told how far it has come.
        deadline: when the answer is due (seconds of time.monotonic); None: whenever.
        coding: what the answer's body is to be compressed in; None: nothing.

    Raises:
        DeadlineExceeded: the time is up, by `deadline` or by what the body says.
        ProbmapError: the request asks for what cannot be, or for more than there is room for.
    """
    size = len(body) + exchange.beside_bytes
    limit = asyncio.timeout_at(_on_loop(deadline))
    try:
        async with limit:
            with progress.stage("decode"):
                job = await runtime.transcode(size, partial(exchange.decode, body))
                progress.read(job)
            del body
            if exchange.timeout_seconds is not None:
                given = progress.arrived + exchange.timeout_seconds
                deadline = given if deadline is None else min(given, deadline)
                limit.reschedule(_on_loop(deadline))
            permit.hold(job.bytes, job.rows)
            submitted = time.monotonic()
            completed = await runtime.engine.submit(job)
            progress.computed(submitted, completed)
            runtime.metrics.observe_wait(job.request.mapping.name, completed.queue_seconds)
            evaluation = completed.evaluation
            written = exchange.written_bytes(job, evaluation)
            permit.settle(job.bytes + written)
            with progress.stage("encode"):
                encode = partial(exchange.encode, job, evaluation)
                encoded = await runtime.transcode(written, encode)
                if coding is not None:
                    shrink = partial(compressed, encoded, coding)
                    encoded = await runtime.transcode(encoded.size, shrink)
            permit.settle(encoded.size)
            progress.is_answered = True
            return encoded
    except TimeoutError:
        if limit.expired():
            raise DeadlineExceeded from None
        raise
    finally:
        runtime.statistics.count(progress)


def _on_loop(moment: float | None) -> float | None:
    """A time of time.monotonic as one of the event loop's clock."""
    if moment is None:
        return None
    return asyncio.get_running_loop().time() + moment - time.monotonic()
