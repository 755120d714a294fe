"""One table: for every mapping, the parameters its tests run with and what is claimed of them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mappings.base import Mapping
from mappings.registry import MAPPINGS, registered

PerClasses = Callable[[int], Any]
"""A parameter whose value depends on the count of classes."""


@dataclass(frozen=True)
class Case:
    """A mapping with parameters.

    Attributes:
        parameters: as in a request, without the name; callables take the count of classes.
        equals: another mapping (as in a request), "uniform" or "maxima" (the maxima share the
            mass equally), which the same row must be mapped to within `within`.
    """

    name: str
    label: str
    parameters: dict[str, Any] = field(default_factory=dict)
    equals: dict[str, Any] | str | None = None
    within: float = 1e-12

    def request(self, classes: int) -> dict[str, Any]:
        """The mapping as a request's object, for rows of so many classes."""
        values = {
            key: value(classes) if callable(value) else value
            for key, value in self.parameters.items()
        }
        return {"name": self.name, **values}

    def mapping(self, classes: int) -> Mapping:
        """The mapping for rows of so many classes."""
        return built(self.request(classes))

    def __str__(self) -> str:
        return f"{self.name}-{self.label}"


def built(request: dict[str, Any] | str) -> Mapping:
    """The mapping that a request's object, or just its name, stands for."""
    if isinstance(request, str):
        request = {"name": request}
    return registered(MAPPINGS, request["name"])(**request)


def weights(classes: int) -> list[float]:
    """Weights of all sizes, some of them 0, never the first."""
    cycle = [1.5, 0.25, 0.0, 4.0, 1.0, 0.125, 3.706]
    return [cycle[i % len(cycle)] for i in range(classes)]


def _table(name: str, rows: dict[str, dict[str, Any]]) -> list[Case]:
    claims = ("equals", "within")
    return [
        Case(
            name,
            label,
            {key: value for key, value in row.items() if key not in claims},
            **{key: value for key, value in row.items() if key in claims},
        )
        for label, row in rows.items()
    ]


SOFTMAX = {"name": "softmax"}
SPARSEMAX = {"name": "sparsemax"}

COLD: dict[str, dict[str, Any]] = {
    "at-zero-temperature": {"temperature": 0, "equals": "maxima", "within": 0},
    "nearly-frozen": {"temperature": 1e-30, "equals": "maxima", "within": 0},
}
HOT: dict[str, dict[str, Any]] = {
    "infinitely-hot": {"temperature": 1e300, "equals": "uniform"},
}

CASES: list[Case] = [
    *_table("softmax", {"default": {}, "warm": {"temperature": 2.5}, **COLD, **HOT}),
    *_table(
        "sparse_softmax",
        {
            "unlimited": {"equals": SOFTMAX},
            "top-k": {"k": 3},
            "top-1": {"k": 1, "temperature": 0.7},
            "top-p": {"p": 0.8},
            "top-k-then-p": {"k": 5, "p": 0.6, "temperature": 2.0},
            "top-k-with-all-ties": {"k": 2, "ties": "all"},
            "more-than-all": {"k": 1 << 53, "equals": SOFTMAX},
            "all-the-mass": {"p": 1, "equals": SOFTMAX},
            "no-mass": {"p": 0},
            **COLD,
            **HOT,
        },
    ),
    *_table(
        "taylor_softmax",
        {
            "default": {},
            "order-4-cold": {"order": 4, "temperature": 0.3},
            "order-16-near-zero": {
                "order": 16,
                "temperature": 40,
                "equals": {**SOFTMAX, "temperature": 40},
            },
            **HOT,
        },
    ),
    *_table(
        "spherical_softmax",
        {
            "default": {},
            "floored": {"epsilon": 0.01, "temperature": 0.5},
            "flooded": {"epsilon": 1e300, "equals": "uniform"},
            "infinitely-hot": {"epsilon": 1.0, "temperature": 1e200, "equals": "uniform"},
        },
    ),
    *_table(
        "normalized",
        {
            "default": {},
            "softplus": {"function": "softplus", "temperature": 0.5},
            "square": {"function": "square"},
            "square-has-no-temperature": {
                "function": "square",
                "temperature": 1e-30,
                "equals": {"name": "normalized", "function": "square"},
            },
            **HOT,
        },
    ),
    *_table(
        "weighted_softmax",
        {
            "default": {"weights": weights},
            "cold": {"weights": weights, "temperature": 0.2},
            "equal-weights": {"weights": lambda n: [0.3] * n, "equals": SOFTMAX},
            "at-zero-temperature": {
                "weights": lambda n: [0.3] * n,
                "temperature": 0,
                "equals": "maxima",
            },
            "infinitely-hot": {
                "weights": lambda n: [2.0] * n,
                "temperature": 1e300,
                "equals": "uniform",
            },
        },
    ),
    *_table(
        "t_softmax",
        {
            "default": {},
            "narrow": {"t": 0.05, "temperature": 2.0},
            "wide": {"t": 2.5},
            "unlimited": {"t": 1e300, "equals": SOFTMAX},
            "vanishing": {"t": 1e-300, "equals": "maxima", "within": 0},
            **COLD,
            **HOT,
        },
    ),
    *_table(
        "r_softmax",
        {
            "default": {},
            "few-zeros": {"r": 0.1, "temperature": 0.7},
            "none-but-the-smallest": {"r": 0},
            "all-zeros": {"r": 1, "equals": "maxima", "within": 0},
            **COLD,
        },
    ),
    *_table("sparsemax", {"default": {}, "warm": {"temperature": 3.0}, **COLD, **HOT}),
    *_table(
        "entmax",
        {
            "default": {},
            "softmax": {"alpha": 1, "equals": SOFTMAX},
            "nearly-softmax": {"alpha": 1 + 1e-7, "equals": SOFTMAX},
            "close-to-softmax": {"alpha": 1 + 1e-5, "equals": SOFTMAX, "within": 1e-4},
            "sparsemax": {"alpha": 2, "equals": SPARSEMAX},
            "close-to-sparsemax": {"alpha": 2 + 1e-12, "equals": SPARSEMAX, "within": 1e-9},
            "heavy-tailed": {"alpha": 0.5},
            "heaviest": {"alpha": 0.1, "temperature": 0.5},
            "warm": {"alpha": 1.25, "temperature": 2.0},
            "steep": {"alpha": 4},
            "steepest": {"alpha": 16, "temperature": 5.0},
            **COLD,
            **HOT,
        },
    ),
    *_table(
        "sparsegen",
        {
            "default": {"equals": SPARSEMAX},
            "sparser": {"lam": 0.6, "temperature": 2.0},
            "denser": {"lam": -4.0},
            "flat": {"lam": -1e300, "equals": "uniform"},
            "one-class": {"lam": 1 - 2**-53, "equals": "maxima"},
            "exponential": {"g": "exp", "temperature": 2.0},
            "square": {"g": "square", "lam": 0.5},
            **HOT,
        },
    ),
    *_table(
        "sparsehourglass",
        {
            "default": {},
            "scale-free": {"q": 0.01, "temperature": 0.5},
            "shift-free": {"q": 1e15, "equals": SPARSEMAX},
            **HOT,
        },
    ),
    *_table(
        "perturb_max",
        {
            "default": {},
            "normal-cold": {"temperature": 0.3},
            "gumbel": {"noise": "gumbel", "equals": SOFTMAX},
            "logistic": {"noise": "logistic", "temperature": 0.5},
            "uniform": {"noise": "uniform", "temperature": 4.0},
            "exponential": {"noise": "exponential"},
            "at-zero-temperature": {"temperature": 0, "equals": "maxima", "within": 1e-14},
            "infinitely-hot": {"temperature": 1e300, "equals": "uniform", "within": 1e-10},
        },
    ),
    *_table(
        "gumbel_softmax",
        {
            "default": {"seed": 7},
            "cold": {"seed": (1 << 64) - 1, "temperature": 0.1},
            "hard": {"seed": 11, "hard": True},
            "at-zero-temperature": {"seed": 3, "temperature": 0},
            "infinitely-hot": {"seed": 5, "temperature": 1e300, "equals": "uniform"},
        },
    ),
    *_table(
        "margin_softmax",
        {
            "default": {"target": 0},
            "last-class": {"target": lambda n: n - 1, "margin": 0.2, "temperature": 0.05},
            "angle": {"target": 0, "kind": "additive_angle", "temperature": 0.1},
            "no-margin": {"target": 0, "margin": 0, "equals": SOFTMAX},
            "no-angle": {"target": 0, "margin": 0, "kind": "additive_angle", "equals": SOFTMAX},
            "infinitely-hot": {"target": 0, "temperature": 1e300, "equals": "uniform"},
        },
    ),
]

NAMES = tuple(dict.fromkeys(case.name for case in CASES))
DEFAULTS = [next(case for case in CASES if case.name == name) for name in NAMES]
"""The first case of each mapping."""


def logits(rows: int, classes: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Random rows within [−1, 1]: cosines, so that every mapping takes them."""
    generator = np.random.default_rng([seed, rows, classes])
    return torch.from_numpy(generator.uniform(-1, 1, (rows, classes))).to(dtype)


def spread(case: Case, values: Tensor) -> Tensor:
    """Rows of cosines as wide as a model's logits, where the mapping takes them."""
    return values if case.name == "margin_softmax" else 6 * values
