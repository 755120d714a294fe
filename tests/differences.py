"""Derivatives by differences: of our own answers in float64, of the reference in 60 digits."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath as mp
import torch
from torch import Tensor

import reference

WIDEST, SHRINKING, LEVELS = 2e-2, 8.0, 8
"""Steps tried: from 2e-2 down to 1e-8."""

ROUNDING = 1e-16
"""What a value within [0, 1] is off by at least."""


@dataclass(frozen=True)
class Slopes:
    """Derivatives along some directions.

    Attributes:
        values: (directions, outputs).
        errors: (directions, 1) how far two neighbouring steps are apart at the best of them,
            and what rounding does there.
    """

    values: Tensor
    errors: Tensor


def slopes(function: Callable[[Tensor], Tensor], at: Tensor, directions: Tensor) -> Slopes:
    """Central differences of fourth order, at the step where shrinking it changes least.

    Args:
        function: of points (points, inputs) gives (points, outputs).
        at: (inputs,) where the derivatives are taken; −inf stays as it is.
        directions: (directions, inputs).
    """
    count, inputs = directions.shape
    steps = WIDEST / SHRINKING ** torch.arange(LEVELS, dtype=torch.float64)
    shifts = steps.unsqueeze(-1) * torch.tensor([-2, -1, 1, 2], dtype=torch.float64)
    points = at + shifts.reshape(-1, 1, 1) * directions
    found = function(points.reshape(-1, inputs)).double().reshape(LEVELS, 4, count, -1)
    far_below, below, above, far_above = found.unbind(1)
    estimates = (8 * (above - below) - (far_above - far_below)) / (12 * steps.reshape(-1, 1, 1))
    rounding = ROUNDING / steps[1:].unsqueeze(-1)
    gaps = estimates.diff(dim=0).abs().amax(dim=-1) + rounding
    # A wide step may reach where the function is infinite.
    errors, best = torch.where(gaps.isnan(), torch.inf, gaps).min(dim=0)
    return Slopes(estimates[best + 1, torch.arange(count)], errors.unsqueeze(-1))


def assert_slopes(got: Tensor, wanted: Slopes, sharp: float = 1e-6) -> None:
    """Derivatives (directions, outputs) agree with the differences, which must be sharp."""
    scale = max(1.0, float(got.abs().max()))
    assert bool(got.isfinite().all())
    assert float(wanted.errors.max()) <= sharp * scale
    excess = (got - wanted.values).abs() - 3 * wanted.errors
    assert float(excess.max()) <= 1e-9 * scale


STEP = "1e-15"
"""The step of differences in 60 digits: their error is about 1e-25."""


def exact_slopes(request: dict[str, Any], row: list[float], parameter: str | None = None) -> Tensor:
    """∂p_i/∂x_j as (classes, classes), or ∂p_i/∂parameter as (classes,), from the reference."""
    with mp.workdps(reference.DIGITS):
        given = {key: _exact(value) for key, value in request.items() if key != "name"}
        given.setdefault("temperature", mp.mpf(1))
        solve = reference.SOLVERS[request["name"]]
        x, step = [mp.mpf(value) for value in row], mp.mpf(STEP)
        if parameter is not None:
            fewer, more = ({**given, parameter: given[parameter] + s * step} for s in (-1, 1))
            found = _slope(solve(x, **fewer), solve(x, **more), step)
            return torch.tensor(found, dtype=torch.float64)
        columns = []
        for j in range(len(x)):
            below, above = ([*x[:j], x[j] + sign * step, *x[j + 1 :]] for sign in (-1, 1))
            columns.append(_slope(solve(below, **given), solve(above, **given), step))
        return torch.tensor(columns, dtype=torch.float64).T


def _slope(low: reference.Distribution, high: reference.Distribution, step: Any) -> list[float]:
    pairs = zip(low.probabilities, high.probabilities, strict=True)
    return [float((above - below) / (2 * step)) for below, above in pairs]


def _exact(value: Any) -> Any:
    if isinstance(value, list):
        return [mp.mpf(item) for item in value]
    return mp.mpf(value) if isinstance(value, float) else value
