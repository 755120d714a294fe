"""What benchmarks/kernels.py compares: our kernels, the entmax package, and baselines that sort.

A contender of ours answers in compact form (`ours`, the support with its probabilities) or in full
(`dense`). The baselines are what is written in a few lines of torch where nothing better is known:
sort the row, find the threshold among the cumulative sums, go back to the places.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from entmax import entmax15, entmax_bisect, sparsemax
from torch import Tensor

from mappings.base import Mapping
from mappings.catalogue.softmax import Softmax
from mappings.evaluate import evaluate
from mappings.evaluation import Output
from mappings.processor import Processor
from mappings.registry import MAPPINGS, PROCESSORS
from mappings.sampling import Draws

Kernel = Callable[[Tensor], object]

K, P, RATIO, ALPHA = 50, 0.9, 0.1, 1.3


@dataclass(frozen=True)
class Contender:
    """A mapping or a processor, and what it is measured against; each takes (rows, classes).

    Attributes:
        ours: the support and its probabilities alone; for "draw" a token a row.
        dense: the probabilities of all classes; None where there are none.
        package: the entmax package's; None where it has no such mapping.
        sorting: our baseline that sorts, (rows, classes) in and out; None where none would sort.
    """

    name: str
    ours: Kernel
    dense: Kernel | None = None
    package: Kernel | None = None
    sorting: Callable[[Tensor], Tensor] | None = None


def scattered(values: Tensor, places: Tensor) -> Tensor:
    """Sorted values back in their places."""
    return torch.zeros_like(values).scatter(-1, places, values)


def sorted_sparsemax(logits: Tensor) -> Tensor:
    """Sparsemax as published: the threshold by cumulative sums of the sorted row."""
    ordered = logits.sort(dim=-1, descending=True).values
    ranks = torch.arange(1, logits.shape[-1] + 1, device=logits.device)
    sums = ordered.cumsum(dim=-1) - 1
    size = (ranks * ordered > sums).sum(dim=-1, keepdim=True)
    return (logits - sums.gather(-1, size - 1) / size).clamp(min=0)


def sorted_entmax15(logits: Tensor) -> Tensor:
    """1.5-entmax as published: the threshold by means and variances of the sorted row."""
    halves = (logits - logits.amax(dim=-1, keepdim=True)) / 2
    ordered = halves.sort(dim=-1, descending=True).values
    ranks = torch.arange(1, logits.shape[-1] + 1, device=logits.device)
    mean = ordered.cumsum(dim=-1) / ranks
    spread = ordered.square().cumsum(dim=-1) - ranks * mean.square()
    thresholds = mean - ((1 - spread) / ranks).clamp(min=0).sqrt()
    size = (thresholds <= ordered).sum(dim=-1, keepdim=True)
    return (halves - thresholds.gather(-1, size - 1)).clamp(min=0).square()


def sorted_top_k(logits: Tensor) -> Tensor:
    """Softmax of the K largest of a sorted row."""
    ordered, places = logits.sort(dim=-1, descending=True, stable=True)
    ranks = torch.arange(logits.shape[-1], device=logits.device)
    return scattered(ordered.masked_fill(ranks >= K, -torch.inf).softmax(dim=-1), places)


def sorted_top_p(logits: Tensor) -> Tensor:
    """Softmax of the shortest prefix of a sorted row that holds P."""
    ordered, places = logits.sort(dim=-1, descending=True, stable=True)
    masses = ordered.double().softmax(dim=-1)
    before = masses.cumsum(dim=-1) - masses
    return scattered(ordered.masked_fill(before >= P, -torch.inf).softmax(dim=-1), places)


def sorted_typical(logits: Tensor) -> Tensor:
    """Softmax of the classes whose surprisal is nearest to the entropy and that hold P."""
    logs = logits.double().log_softmax(dim=-1)
    distance = (-logs - (-logs.exp() * logs).sum(dim=-1, keepdim=True)).abs()
    places = distance.sort(dim=-1, stable=True).indices
    masses = logs.exp().gather(-1, places)
    before = masses.cumsum(dim=-1) - masses
    kept = logits.gather(-1, places).masked_fill(before >= P, -torch.inf)
    return scattered(kept.softmax(dim=-1), places)


SORTING: dict[str, Callable[[Tensor], Tensor]] = {
    "sparsemax": sorted_sparsemax,
    "entmax 1.5": sorted_entmax15,
    "sparse_softmax": sorted_top_k,
    "top_k": sorted_top_k,
    "top_p": sorted_top_p,
    "typical": sorted_typical,
}

PACKAGE: dict[str, Kernel] = {
    "sparsemax": partial(sparsemax, dim=-1),
    "entmax 1.5": partial(entmax15, dim=-1),
    f"entmax {ALPHA}": partial(entmax_bisect, alpha=ALPHA, dim=-1),
}


def mapping_parameters(classes: int) -> dict[str, list[dict[str, Any]]]:
    """For a mapping whose defaults are not enough, what it is measured with."""
    weights = torch.ones(classes, dtype=torch.float64)
    return {
        "entmax": [{"alpha": 1.5}, {"alpha": ALPHA}],
        "gumbel_softmax": [{"seed": 1}],
        "margin_softmax": [{"target": 0}],
        "sparse_softmax": [{"k": K}],
        "weighted_softmax": [{"weights": weights}],
    }


def processor_parameters() -> dict[str, dict[str, Any]]:
    """What each processor is measured with."""
    ids = list(range(0, 1000, 7))
    return {
        "allow": {"ids": ids},
        "ban": {"ids": ids},
        "bias": {"ids": ids, "values": [0.5] * len(ids)},
        "epsilon": {"cutoff": 3e-4},
        "eta": {"cutoff": 3e-4},
        "min_p": {"ratio": RATIO},
        "p_less": {},
        "presence_frequency": {"presence": 0.5, "ids": ids, "counts": [2] * len(ids)},
        "repetition_penalty": {"penalty": 1.2, "ids": ids},
        "temperature": {"value": 0.7},
        "top_a": {"a": 0.2},
        "top_k": {"k": K},
        "top_n_sigma": {"n": 1.0},
        "top_p": {"p": P},
        "typical": {"mass": P},
    }


def contender(name: str, mapping: Mapping, processors: tuple[Processor, ...] = ()) -> Contender:
    """A mapping, after processors, and its baselines by name."""

    def answered(output: Output) -> Kernel:
        return partial(evaluate, mapping=mapping, processors=processors, outputs=[output])

    return Contender(
        name, answered("support"), answered("probabilities"), PACKAGE.get(name), SORTING.get(name)
    )


def contenders(classes: int) -> list[Contender]:
    """Every registered mapping and processor (before a softmax), and a draw from a softmax."""
    given = mapping_parameters(classes)
    found = []
    for name, kind in MAPPINGS.items():
        for parameters in given.get(name, [{}]):
            label = f"entmax {parameters['alpha']}" if name == "entmax" else name
            found.append(contender(label, kind(**parameters)))
    softmax = Softmax()
    for name, parameters in processor_parameters().items():
        found.append(contender(name, softmax, (PROCESSORS[name](**parameters),)))
    found.append(Contender("draw", partial(drawn, softmax)))
    missing = PROCESSORS.keys() - processor_parameters().keys()
    assert not missing, f"give {sorted(missing)} parameters to be measured with"
    return found


def drawn(mapping: Mapping, logits: Tensor) -> object:
    """A token a row."""
    return evaluate(logits, mapping, outputs=["tokens"], draws=Draws(seed=1))
