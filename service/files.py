"""Answers as files: .json as the server would send them, .npz as arrays."""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from mappings.evaluation import OUTPUTS, Evaluation, JacobianAnswer
from mappings.support import Support
from service.engine.job import Job
from service.settings import Settings
from service.wire.json_encode import encode


def write_json(path: Path | None, job: Job, evaluation: Evaluation, settings: Settings) -> None:
    """Writes the JSON answer to a file, or to the standard output without one."""
    parts = encode(job, evaluation, settings)
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
        value = getattr(evaluation, name)
        if isinstance(value, JacobianAnswer):
            arrays |= _jacobian_arrays(value)
        elif isinstance(value, dict):
            arrays |= {f"gradient_{key}": part.numpy() for key, part in value.items()}
        elif isinstance(value, Support):
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


def _jacobian_arrays(jacobian: JacobianAnswer) -> dict[str, Any]:
    """The parts of a Jacobian; blocks one after the other, flattened."""
    parts = ("matrix", "product", "diagonal", "left", "right")
    found = {name: getattr(jacobian, name) for name in parts}
    arrays: dict[str, Any] = {
        f"jacobian_{name}": value.numpy() for name, value in found.items() if value is not None
    }
    if jacobian.blocks is not None and jacobian.indices is not None:
        arrays["jacobian_sizes"] = np.array([len(ids) for ids in jacobian.indices], np.int64)
        for name, values in (("indices", jacobian.indices), ("values", jacobian.blocks)):
            flat = [value.numpy().ravel() for value in values]
            arrays[f"jacobian_{name}"] = np.concatenate(flat) if flat else np.zeros(0)
    return arrays
