"""One table: for every logits processor, rows whose outcome is computed by hand."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from cases import built
from mappings.evaluate import evaluate
from mappings.processor import Processor
from mappings.registry import PROCESSORS

MASKED = -math.inf


@dataclass(frozen=True)
class ProcessorCase:
    """A processor with parameters, a row and what becomes of it.

    Attributes:
        parameters: as in a request, without the name.
        row: logits.
        kept: the classes kept, unchanged; None: `wanted` says it all.
        wanted: the logits afterwards.
    """

    name: str
    label: str
    parameters: dict[str, Any]
    row: list[float]
    kept: list[int] | None = None
    wanted: list[float] = field(default_factory=list)

    def request(self) -> dict[str, Any]:
        """The step as a request's object."""
        return {"name": self.name, **self.parameters}

    def outcome(self) -> list[float]:
        """The logits afterwards."""
        if self.kept is None:
            return self.wanted
        return [x if i in self.kept else MASKED for i, x in enumerate(self.row)]

    def __str__(self) -> str:
        return f"{self.name}-{self.label}"


def step(request: dict[str, Any]) -> Processor:
    """The processor that a request's object stands for."""
    return PROCESSORS[request["name"]](**request)


def chain(*requests: dict[str, Any]) -> list[Processor]:
    """The processors of a request."""
    return [step(request) for request in requests]


def survivors(
    values: Tensor | Sequence[float] | Sequence[Sequence[float]],
    *requests: dict[str, Any],
    temperature: float = 1.0,
) -> list[list[int]]:
    """The classes that softmax gives something after a chain, row by row, ascending."""
    if not isinstance(values, Tensor):
        values = torch.tensor(values, dtype=torch.float64)
    found = evaluate(
        values,
        built({"name": "softmax", "temperature": temperature}),
        processors=chain(*requests),
        outputs=["log_probabilities"],
    ).log_probabilities
    assert found is not None
    return [(row > MASKED).nonzero().flatten().tolist() for row in found]


def log(*masses: float) -> list[float]:
    """Logits of these probabilities; 0 is masked."""
    return [math.log(p) if p > 0 else MASKED for p in masses]


HALVES = log(0.5, 0.25, 0.125, 0.125)
"""H = 1.75 log 2, Σp² = 0.34375; −log p is off H by 0.75, 0.25, 1.25 and 1.25 log 2."""
FLAT = [0.5] * 4
TIES = [1.0, 2.0, 2.0, 2.0, 3.0]
SIGMA = [5.0, 4.0, 0.0, MASKED]
"""Their population standard deviation is √(14/3) = 2.1602."""


def _keeping(name: str, rows: list[tuple[str, dict[str, Any], list[float], list[int]]]) -> Any:
    return [ProcessorCase(name, label, given, row, kept) for label, given, row, kept in rows]


def _changing(name: str, rows: list[tuple[str, dict[str, Any], list[float], list[float]]]) -> Any:
    return [
        ProcessorCase(name, label, given, row, wanted=wanted) for label, given, row, wanted in rows
    ]


PROCESSOR_CASES: list[ProcessorCase] = [
    *_changing("temperature", [
        ("half", {"value": 0.5}, [1.0, MASKED, -3.0], [2.0, MASKED, -6.0]),
        ("four", {"value": 4}, [1.0, MASKED, -3.0], [0.25, MASKED, -0.75]),
        ("one", {"value": 1}, HALVES, HALVES),
    ]),
    *_keeping("top_k", [
        ("ties-first", {"k": 3}, TIES, [1, 2, 4]),
        ("ties-all", {"k": 3, "ties": "all"}, TIES, [1, 2, 3, 4]),
        ("one", {"k": 1}, TIES, [4]),
        ("one-of-equals", {"k": 1}, FLAT, [0]),
        ("all-of-equals", {"k": 1, "ties": "all"}, FLAT, [0, 1, 2, 3]),
        ("as-many-as-there-are", {"k": 5}, TIES, [0, 1, 2, 3, 4]),
        ("more-than-there-are", {"k": 50}, [1.0, 2.0], [0, 1]),
        ("masked", {"k": 2}, [MASKED, 1.0, 3.0, MASKED, 2.0], [2, 4]),
        ("masked-fill-nothing", {"k": 4}, [MASKED, 1.0, 3.0, MASKED, 2.0], [1, 2, 4]),
        ("two-zeros-are-equal", {"k": 1}, [-0.0, 0.0], [0]),
    ]),
    *_keeping("top_p", [
        ("two", {"p": 0.8}, log(0.5, 0.3, 0.1, 0.1), [0, 1]),
        ("three", {"p": 0.9}, log(0.5, 0.35, 0.1, 0.05), [0, 1, 2]),
        ("none-is-one", {"p": 0}, log(0.2, 0.5, 0.3), [1]),
        ("none-of-equals-is-one", {"p": 0}, FLAT, [0]),
        ("none-of-equals-is-all", {"p": 0, "ties": "all"}, FLAT, [0, 1, 2, 3]),
        ("all", {"p": 1}, log(1e-300, 1.0, 1e-200), [0, 1, 2]),
        ("half-of-equals", {"p": 0.5}, FLAT, [0, 1]),
        ("half-of-equals-is-all", {"p": 0.5, "ties": "all"}, FLAT, [0, 1, 2, 3]),
        ("masked", {"p": 0.6}, log(0.5, 0, 0.25, 0, 0.25), [0, 2]),
        ("masked-with-ties", {"p": 0.6, "ties": "all"}, log(0.5, 0, 0.25, 0, 0.25), [0, 2, 4]),
        ("a-tail-within-the-slack", {"p": 0.9}, log(0.9, 0.1), [0]),
    ]),
    *_keeping("min_p", [
        ("low", {"ratio": 0.4}, HALVES, [0, 1]),
        ("high", {"ratio": 0.6}, HALVES, [0]),
        ("none", {"ratio": 0}, [0.0, -800.0, MASKED], [0, 1]),
        ("all", {"ratio": 1}, [2.0, 1.0, 2.0], [0, 2]),
        ("equals", {"ratio": 1}, FLAT, [0, 1, 2, 3]),
        ("masked", {"ratio": 0.4}, [MASKED, 1.0, 0.9, MASKED], [1, 2]),
    ]),
    *_keeping("typical", [
        ("nearest", {"mass": 0.2}, HALVES, [1]),
        ("two", {"mass": 0.3}, HALVES, [0, 1]),
        ("first-of-equals", {"mass": 0.8}, HALVES, [0, 1, 2]),
        ("nearly-all", {"mass": 0.9}, HALVES, [0, 1, 2, 3]),
        ("all", {"mass": 1}, [0.0, -800.0, MASKED], [0, 1]),
        ("equals", {"mass": 0.5}, FLAT, [0, 1]),
        ("no-nan", {"mass": 0.5}, [0.0, -200.0, -1.0], [0]),
        ("no-nan-where-masked", {"mass": 0.5}, [0.0, MASKED, -1.0], [0]),
    ]),
    *_keeping("epsilon", [
        ("low", {"cutoff": 0.2}, HALVES, [0, 1]),
        ("none-above", {"cutoff": 0.6}, HALVES, [0]),
        ("none-above-of-equals", {"cutoff": 0.3}, FLAT, [0]),
        ("off", {"cutoff": 0}, [0.0, -800.0, MASKED], [0, 1]),
        ("masked", {"cutoff": 0.4}, log(0, 0.5, 0.25, 0, 0.25), [1]),
    ]),
    *_keeping("eta", [
        ("certain-row", {"cutoff": 0.04}, HALVES, [0, 1, 2, 3]),
        ("by-entropy", {"cutoff": 0.5}, HALVES, [0, 1]),
        ("steep", {"cutoff": 0.9}, HALVES, [0]),
        ("off", {"cutoff": 0}, [0.0, -800.0, MASKED], [0, 1]),
        ("equals", {"cutoff": 0.99}, FLAT, [0, 1, 2, 3]),
        ("no-nan", {"cutoff": 0.5}, [0.0, -200.0, -1.0], [0]),
    ]),
    *_keeping("top_n_sigma", [
        ("finite-ones", {"n": 0.5}, SIGMA, [0, 1]),
        ("below-the-second", {"n": 0.46}, SIGMA, [0]),
        ("above-the-second", {"n": 0.47}, SIGMA, [0, 1]),
        ("wide", {"n": 2.32}, SIGMA, [0, 1, 2]),
        ("nearly-wide", {"n": 2.31}, SIGMA, [0, 1]),
        ("none", {"n": 0}, [2.0, 1.0, 2.0], [0, 2]),
        ("equals", {"n": 0}, FLAT, [0, 1, 2, 3]),
        ("huge", {"n": 1e300}, [0.0, -1e8, MASKED], [0, 1]),
    ]),
    *_keeping("top_a", [
        ("strict", {"a": 0.8}, HALVES, [0, 1]),
        ("loose", {"a": 0.4}, HALVES, [0, 1, 2, 3]),
        ("off", {"a": 0}, [0.0, -800.0, MASKED], [0, 1]),
        ("equals", {"a": 1}, FLAT, [0, 1, 2, 3]),
        ("alone", {"a": 1}, [MASKED, 7.0], [1]),
    ]),
    *_keeping("p_less", [
        ("one", {}, HALVES, [0]),
        ("two", {}, log(0.4, 0.2, 0.4), [0, 2]),
        ("equals", {}, FLAT, [0, 1, 2, 3]),
        ("masked", {}, [MASKED, 0.5, 0.5, MASKED, -3.0], [1, 2]),
    ]),
    *_keeping("allow", [
        ("some", {"ids": [2, 0, 2]}, TIES, [0, 2]),
        ("masked-stays", {"ids": [0, 3]}, SIGMA, [0]),
        ("all", {"ids": [0, 1, 2, 3, 4]}, TIES, [0, 1, 2, 3, 4]),
    ]),
    *_keeping("ban", [
        ("some", {"ids": [2, 0, 2]}, TIES, [1, 3, 4]),
        ("masked-stays", {"ids": [0, 3]}, SIGMA, [1, 2]),
        ("nothing", {"ids": []}, TIES, [0, 1, 2, 3, 4]),
    ]),
    *_changing("bias", [
        ("some", {"ids": [0, 2], "values": [1.5, -2]}, TIES, [2.5, 2.0, 0.0, 2.0, 3.0]),
        ("twice", {"ids": [4, 4], "values": [0.25, 0.5]}, TIES, [1.0, 2.0, 2.0, 2.0, 3.75]),
        ("masked-stays", {"ids": [3], "values": [100]}, SIGMA, SIGMA),
        ("nothing", {"ids": [], "values": []}, TIES, TIES),
    ]),
    *_changing("repetition_penalty", [
        ("by-sign", {"penalty": 1.25, "ids": [0, 1, 3]},
         [-2.0, 5.0, 5.0, 0.0], [-2.5, 4.0, 5.0, 0.0]),
        ("reward", {"penalty": 0.5, "ids": [0, 1]}, [-2.0, 5.0, 5.0, 0.0], [-1.0, 10.0, 5.0, 0.0]),
        ("twice-is-once", {"penalty": 2, "ids": [1, 1, 1]}, [1.0, 6.0], [1.0, 3.0]),
        ("masked-stays", {"penalty": 2, "ids": [3, 0]}, SIGMA, [2.5, 4.0, 0.0, MASKED]),
        ("one", {"penalty": 1, "ids": [0, 1]}, [-2.0, 5.0], [-2.0, 5.0]),
    ]),
    *_changing("presence_frequency", [
        ("both", {"presence": 0.5, "frequency": 0.25, "ids": [0, 2, 3], "counts": [2, 0, 1]},
         TIES, [0.0, 2.0, 2.0, 1.25, 3.0]),
        ("presence", {"presence": 0.5, "ids": [1, 0], "counts": [9, 0]},
         TIES, [1.0, 1.5, 2.0, 2.0, 3.0]),
        ("frequency", {"frequency": -0.5, "ids": [1, 0], "counts": [4, 1]},
         TIES, [1.5, 4.0, 2.0, 2.0, 3.0]),
        ("twice", {"presence": 1, "frequency": 0.5, "ids": [4, 4], "counts": [1, 2]},
         TIES, [1.0, 2.0, 2.0, 2.0, 0.5]),
        ("masked-stays", {"presence": 1, "ids": [3], "counts": [1]}, SIGMA, SIGMA),
        ("nothing", {"ids": [], "counts": []}, TIES, TIES),
    ]),
]  # fmt: skip

PROCESSOR_NAMES = tuple(dict.fromkeys(case.name for case in PROCESSOR_CASES))
FIRST = [next(c for c in PROCESSOR_CASES if c.name == name) for name in PROCESSOR_NAMES]
"""The first case of each processor."""
CUTTING = ("top_k", "top_p", "min_p", "typical", "epsilon", "eta", "top_n_sigma", "top_a", "p_less")
"""Processors that mask by what the logits are, and must leave something."""
