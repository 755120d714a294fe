"""Nonnegative weights, one a class, for all rows or a list a row."""

from math import isnan
from typing import Annotated, Any

import torch
from pydantic import PlainValidator
from torch import Tensor

from mappings.parameters import NO_WEIGHT, NonNegative, PerClassMark


def _weights(value: object) -> Tensor:
    """Weights (classes,) or (rows, classes) as float64; shorter rows are padded with NO_WEIGHT."""
    weights = value.double() if isinstance(value, Tensor) else _stacked(value)
    # Only behind the last weight of a row may nothing stand; NaN says so.
    missing = weights.isnan()
    behind = missing.flip(-1).cummin(dim=-1).values.flip(-1) if weights.numel() else missing
    sound = ((weights >= 0) & (weights < torch.inf)) | behind
    if weights.ndim not in (1, 2) or not weights.numel() or not bool(sound.all()):
        raise ValueError("every weight must be a finite number of at least 0, one a class")
    if bool((weights[..., 0]).isnan().any()) or (weights.ndim == 1 and bool(missing.any())):
        raise ValueError("every weight must be a finite number of at least 0, one a class")
    return torch.where(behind, NO_WEIGHT, weights)


def _stacked(value: object) -> Tensor:
    """Lists of numbers as a tensor, shorter rows padded with NaN."""
    nested = isinstance(value, list) and any(isinstance(entry, list) for entry in value)
    lines: list[Any] = value if nested and isinstance(value, list) else [value]
    for line in lines:
        if not isinstance(line, list) or not line:
            raise ValueError("must be a list of numbers, one a class, or one such list a row")
        if any(kind not in (int, float) for kind in set(map(type, line))):
            raise ValueError("every weight must be a number")
        if isnan(sum(line)):
            raise ValueError("every weight must be a finite number of at least 0, one a class")
    width = max(len(line) for line in lines)
    padded = [line + [torch.nan] * (width - len(line)) for line in lines]
    return torch.tensor(padded if nested else padded[0], dtype=torch.float64)


ClassWeights = Annotated[
    Tensor,
    PlainValidator(_weights, json_schema_input_type=list[NonNegative] | list[list[NonNegative]]),
    PerClassMark(),
]
"""Nonnegative numbers, one a class, or rows × classes."""
