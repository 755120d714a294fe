"""Answers as files: .json as the server would send them, .npz as arrays."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from mappings.evaluation import OUTPUTS, Evaluation
from mappings.support import Support
from service.engine.job import Job
from service.settings import Settings
from service.wire import json


def write_json(path: Path | None, job: Job, evaluation: Evaluation, settings: Settings) -> None:
    """Writes the JSON answer to a file, or to the standard output without one."""
    parts = json.encode(job, evaluation, settings)
    if path is None:
        sys.stdout.buffer.writelines([*parts, b"\n"])
        sys.stdout.flush()
    else:
        with path.open("wb") as file:
            file.writelines(parts)


def write_npz(path: Path, job: Job, evaluation: Evaluation) -> None:
    """Writes one array an output; a support as offsets, indices, probabilities and logarithms."""
    arrays: dict[str, Any] = {}
    for name in OUTPUTS:
        value: Tensor | Support | None = getattr(evaluation, name)
        if isinstance(value, Support):
            for part in ("offsets", "indices", "probabilities", "log_probabilities"):
                arrays[f"support_{part}"] = getattr(value, part).numpy()
        elif value is not None:
            arrays[name] = value.numpy()
    if job.request.invalid_rows == "report":
        arrays["status"] = np.array(evaluation.status)
    if job.lengths is not None:
        arrays["lengths"] = np.array(job.lengths)
    with path.open("wb") as file:
        np.savez(file, **arrays)
