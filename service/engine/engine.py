"""Evaluates jobs on the devices, one worker thread each."""

import asyncio
import itertools
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from mappings.catalogue.softmax import Softmax
from mappings.errors import OutputTooLarge
from mappings.evaluate import evaluate
from schemas.request import MapRequest
from service.engine.job import Completed, Job
from service.errors import TooLarge
from service.settings import DEVICES, raises


class Engine:
    """Takes jobs and answers them; one worker thread a device, one job at a time on each."""

    def __init__(self, device: str) -> None:
        self.devices = devices(device)
        self._workers = [
            ThreadPoolExecutor(1, thread_name_prefix=f"worker-{device}") for device in self.devices
        ]
        self.is_ready = False
        self._turns = itertools.cycle(zip(self.devices, self._workers, strict=True))

    async def start(self) -> None:
        """Evaluates a little on every device, so that the first request does not wait for it."""
        row = torch.zeros(1, 3, dtype=torch.float64)
        request = MapRequest(mapping=Softmax())
        for _ in self._workers:
            await self.submit(Job(row, request))
        self.is_ready = True

    async def submit(self, job: Job) -> Completed:
        """Evaluates a job; raises ProbmapError where the job itself is at fault."""
        device, worker = next(self._turns)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(worker, run, job, device, time.perf_counter())

    def close(self) -> None:
        """Ends the workers, and readiness, once they have finished what was submitted."""
        self.is_ready = False
        for worker in self._workers:
            worker.shutdown()


def devices(choice: str) -> list[torch.device]:
    """The devices that a choice such as auto, cpu or cuda:0,cuda:1 means.

    Raises:
        ValueError: there is no such device.
    """
    if not re.match(DEVICES, choice):
        raise ValueError(f"{choice!r} is no device; give auto, cpu, cuda or cuda:0,cuda:1")
    if choice == "auto":
        choice = "cuda" if torch.cuda.is_available() else "cpu"
    chosen = [torch.device(name) for name in choice.split(",")]
    for device in chosen:
        if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
            count = torch.cuda.device_count()
            raise ValueError(f"there is no device {device}: torch finds {count} CUDA devices")
    return chosen


def run(job: Job, device: torch.device, submitted: float) -> Completed:
    """Evaluates a job on a device, here and now.

    Args:
        job: what to evaluate.
        device: where.
        submitted: when the job was handed in (seconds of time.perf_counter).
    """
    started = time.perf_counter()
    request = job.request
    try:
        evaluation = evaluate(
            job.logits.to(device),
            request.mapping,
            processors=request.processors,
            outputs=request.wanted(),
            dtype=job.dtype,
            support_limit=request.support_limit,
            invalid_rows=request.invalid_rows,
            lengths=job.lengths,
            derivatives=request.derivatives(),
            draws=request.draws(),
            targets=request.aims(),
            output_limit=job.output_limit,
        )
    except OutputTooLarge as error:
        raise TooLarge(f"{error.detail} ({raises('max_output_elements')})") from None
    if device.type != "cpu":
        evaluation = _on_host(evaluation)
    return Completed(evaluation, started - submitted, time.perf_counter() - started)


def _on_host(value: Any) -> Any:
    """An Evaluation, or a part of one, with every tensor in it on the host."""
    if isinstance(value, Tensor):
        return value.cpu()
    if isinstance(value, dict):
        return {name: _on_host(part) for name, part in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], Tensor):
        return [part.cpu() for part in value]
    if is_dataclass(value) and not isinstance(value, type):
        moved = {field.name: _on_host(getattr(value, field.name)) for field in fields(value)}
        return replace(value, **moved)
    return value
