"""What a product with the Jacobian costs beside the mapping itself, at 32 × 151,936.

Run: make bench, or .venv/bin/python benchmarks/derivatives.py [--rows 32] [--classes 151936].
Both sides run in turns in one process; the figure is the ratio of their medians. The goal is 4.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from mappings.base import Mapping
from mappings.evaluate import evaluate
from mappings.registry import MAPPINGS
from mappings.wanted import Derivatives

GOAL = 4.0
REPEATS = 3


def seconds(work: Callable[[], object]) -> float:
    """How long one call takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def built(kind: type[Mapping], classes: int) -> Mapping:
    """A mapping with its defaults, and something for what has none."""
    required: dict[str, Any] = {
        "seed": 1,
        "target": 0,
        "weights": torch.ones(classes, dtype=torch.float64),
    }
    fields = kind.model_fields.items()
    return kind(**{name: required[name] for name, field in fields if field.is_required()})


def main() -> None:
    """Prints one line a mapping."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--classes", type=int, default=151_936)
    given = parser.parse_args()
    torch.manual_seed(0)
    logits = 3 * torch.randn(given.rows, given.classes)
    vector = torch.randn(given.rows, given.classes)
    print(f"{'mapping':<20}{'map ms':>10}{'vjp ms':>10}{'ratio':>8}   goal {GOAL:g}")
    for name, kind in MAPPINGS.items():
        mapping = built(kind, given.classes)
        # Quadrature costs seconds a row; one row shows the ratio as well.
        rows = 1 if name == "perturb_max" else given.rows
        cut, along = logits[:rows], Derivatives("vjp", vector[:rows])
        mapped = partial(evaluate, cut, mapping)
        pulled = partial(evaluate, cut, mapping, outputs=["jacobian"], derivatives=along)
        times = [(seconds(mapped), seconds(pulled)) for _ in range(REPEATS)]
        own, product = (statistics.median(part) * 1e3 for part in zip(*times, strict=True))
        verdict = "" if product <= GOAL * own else "   falls short"
        print(f"{name:<20}{own:>10.1f}{product:>10.1f}{product / own:>8.2f}{verdict}", flush=True)


if __name__ == "__main__":
    main()
