"""Asking for answers in tests, and comparing them to the bit."""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from mappings.base import Mapping
from mappings.evaluate import InvalidRows, evaluate
from mappings.evaluation import Evaluation, Output
from mappings.support import Support

OUTPUTS: tuple[Output, ...] = (
    "probabilities",
    "log_probabilities",
    "support",
    "normalizer",
    "entropy",
    "support_size",
)
"""What every mapping answers of any row."""


def answer(
    logits: Tensor | Sequence[float] | Sequence[Sequence[float]],
    mapping: Mapping,
    *,
    dtype: torch.dtype | None = None,
    support_limit: int | None = None,
    invalid_rows: InvalidRows = "reject",
    lengths: Sequence[int] | None = None,
) -> Evaluation:
    """Every output of OUTPUTS; numbers are taken as float64."""
    if not isinstance(logits, Tensor):
        logits = torch.tensor(logits, dtype=torch.float64)
    return evaluate(
        logits,
        mapping,
        outputs=OUTPUTS,
        dtype=dtype,
        support_limit=support_limit,
        invalid_rows=invalid_rows,
        lengths=lengths,
    )


def probabilities(
    logits: Tensor | Sequence[float] | Sequence[Sequence[float]],
    mapping: Mapping,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """The probabilities alone, (rows, classes)."""
    if not isinstance(logits, Tensor):
        logits = torch.tensor(logits, dtype=torch.float64)
    found = evaluate(logits, mapping, dtype=dtype).probabilities
    assert found is not None
    return found


def present(value: Tensor | None) -> Tensor:
    """An output that was asked for."""
    assert value is not None
    return value


def supported(evaluation: Evaluation) -> Support:
    """The supports, which were asked for."""
    assert evaluation.support is not None
    return evaluation.support


def listed(support: Support, row: int) -> list[int]:
    """The class ids of one row's support, in its order."""
    found: list[int] = support.rows(row, row + 1).indices.tolist()
    return found


def bits(evaluation: Evaluation, row: int, classes: int | None = None) -> dict[str, list[float]]:
    """Everything answered for one row; two rows with the same bits give equal dictionaries.

    Args:
        classes: compare only the first so many classes of the dense outputs.
    """
    one = evaluation.split([row, 1, len(evaluation.status) - row - 1])[1]
    support = supported(one)
    tensors = {
        "probabilities": present(one.probabilities)[:, :classes],
        "log_probabilities": present(one.log_probabilities)[:, :classes],
        "entropy": present(one.entropy),
        "normalizer": present(one.normalizer),
        "support_size": present(one.support_size),
        "indices": support.indices,
        "listed": support.probabilities,
        "listed_logs": support.log_probabilities,
    }
    found: dict[str, list[float]] = {}
    for name, tensor in tensors.items():
        width = {torch.float64: torch.int64, torch.float32: torch.int32}.get(tensor.dtype)
        found[name] = (tensor if width is None else tensor.contiguous().view(width)).tolist()
    return found


def every_bit(value: Any, name: str = "") -> dict[str, bytes]:
    """All that an Evaluation, or a part of one, holds: shapes, dtypes and bytes by name."""
    if value is None:
        return {}
    if isinstance(value, Tensor):
        array = value.detach().cpu().contiguous().numpy()
        return {f"{name} {array.dtype} {array.shape}": array.tobytes()}
    if is_dataclass(value):
        parts = {field.name: getattr(value, field.name) for field in fields(value)}
    elif isinstance(value, dict):
        parts = value
    elif isinstance(value, list):
        parts = {str(place): part for place, part in enumerate(value)}
    else:
        return {name: repr(value).encode()}
    found: dict[str, bytes] = {}
    for key, part in parts.items():
        found |= every_bit(part, f"{name}.{key}")
    return found
