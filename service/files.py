"""Answers as files: .json as the server would send them, .npz as arrays."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from mappings.evaluation import Evaluation
from service.engine.job import Job
from service.settings import Settings
from service.wire.json_encode import encode
from service.wire.safetensors_encode import named_tensors


def write_json(path: Path | None, job: Job, evaluation: Evaluation, settings: Settings) -> None:
    """Writes the JSON answer to a file, or to the standard output without one."""
    parts = encode(job, evaluation, settings)
    if path is None:
        sys.stdout.buffer.writelines([*parts, b"\n"])
        sys.stdout.flush()
    else:
        with written_whole(path) as file:
            file.writelines(parts)


def write_npz(path: Path, job: Job, evaluation: Evaluation) -> None:
    """Writes the tensors that a safetensors answer has, and the rows' statuses as texts."""
    arrays: dict[str, Any] = {
        name: tensor.numpy() for name, tensor in named_tensors(job, evaluation)
    }
    if job.request.invalid_rows == "report":
        arrays["status"] = np.array(evaluation.status)
    with written_whole(path) as file:
        np.savez(file, **arrays)


@contextmanager
def written_whole(path: Path) -> Iterator[IO[bytes]]:
    """A file that gets its name when it is whole."""
    new = path.with_name(f".{path.name}.new")
    try:
        with new.open("wb") as file:
            yield file
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
