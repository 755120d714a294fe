"""The kernels for GPUs against torch's path on the same GPU, and against copying memory.

    python benchmarks/gpu.py [--json FILE]

What counts is the traffic that cannot be avoided, every logit read once and every probability
written once, over the time taken; its share of the bandwidth of a plain copy is the figure. Times
are medians of the device's own clock. Without a GPU nothing is measured.
"""

import argparse
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from mappings import kernels
from mappings.base import Mapping
from mappings.boltzmann import boltzmann
from mappings.catalogue.entmax import Entmax
from mappings.catalogue.sparsemax import Sparsemax
from mappings.compact import spread

SHAPES = [(1, 128_256), (32, 128_256), (256, 32_000), (256, 151_936)]
"""(rows, classes)."""
DTYPES = [torch.bfloat16, torch.float32]
WARM, TIMED = 3, 15
"""Runs before the clock counts, and runs it counts (counts)."""
TARGETS = {"softmax": 0.6, "entmax 1.5": 0.4, "entmax 1.3": 0.4}
"""Shares of the copy bandwidth to reach at 256 × 151,936 bfloat16 (dimensionless)."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table; times in milliseconds, bandwidths in GB/s."""

    name: str
    rows: int
    classes: int
    dtype: str
    ours: float
    torch: float
    bandwidth: float
    copy: float
    target: float | None

    @property
    def share(self) -> float:
        """Of the copy bandwidth (dimensionless)."""
        return self.bandwidth / self.copy

    def line(self) -> str:
        """The line of the table."""
        verdict = ""
        if self.target is not None:
            reached = "reached" if self.share >= self.target else "FALLS SHORT"
            verdict = f"  ≥ {self.target:.0%}: {reached}"
        return (
            f"{self.name:<12}{self.rows:>4} × {self.classes:<8}{self.dtype:<10}"
            f"{self.ours:>9.3f}{self.torch:>9.3f}{self.torch / self.ours:>8.1f} ×"
            f"{self.bandwidth:>9.0f}{self.share:>8.0%}{verdict}"
        )


def milliseconds(run: Callable[[], Any]) -> float:
    """The median time of a run on the device."""
    for _ in range(WARM):
        run()
    times: list[float] = []
    for _ in range(TIMED):
        begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begun.record()
        run()
        ended.record()
        ended.synchronize()
        times.append(begun.elapsed_time(ended))
    return median(times)


def copy_bandwidth() -> float:
    """GB/s read and written by a copy of 1 GiB."""
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.numel() / milliseconds(lambda: target.copy_(source)) / 1e6


def softmax(logits: Tensor, temperature: Tensor) -> Tensor:
    """The dense softmax; torch's path widens half-precision logits first."""
    if kernels.available(logits.device):
        return kernels.shares(logits, temperature)[1]
    return boltzmann(logits.float(), temperature).probabilities


def sparse(mapping: Mapping, logits: Tensor, temperature: Tensor) -> Tensor:
    """A dense answer of the relu family, float32."""
    row = mapping.bind(logits.shape[0], logits.device)
    given = logits if kernels.available(logits.device) else logits.float()
    kept = mapping.candidates(given, row)
    assert kept is not None
    found = mapping.solve(kept.values.float(), row)
    classes = found.classes if kept.classes is None else kept.classes
    return spread(found.probabilities.float(), classes, logits.shape[-1], 0.0)


MAPPINGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "softmax": softmax,
    "sparsemax": partial(sparse, Sparsemax()),
    "entmax 1.5": partial(sparse, Entmax()),
    "entmax 1.3": partial(sparse, Entmax(alpha=1.3)),
}


def by_torch() -> AbstractContextManager[Any]:
    """Within, no kernel is taken."""
    return patch.object(kernels, "available", lambda device: False)


@torch.inference_mode()
def measured(copy: float) -> list[Figure]:
    """Every mapping, shape and dtype; prints each line when it is known."""
    figures = []
    for rows, classes in SHAPES:
        for dtype in DTYPES:
            noise = torch.Generator("cuda").manual_seed(0)
            drawn = torch.randn(rows, classes, device="cuda", generator=noise)
            logits = (3 * drawn).to(dtype)
            temperature = torch.ones(rows, 1, dtype=torch.float64, device="cuda")
            for name, mapping in MAPPINGS.items():
                run = partial(mapping, logits, temperature)
                answer, ours = run(), milliseconds(run)
                with by_torch():
                    torch.testing.assert_close(answer, run(), rtol=2e-6, atol=2e-9)
                    theirs = milliseconds(run)
                moved = logits.numel() * (logits.element_size() + answer.element_size())
                largest = (rows, classes, dtype) == (*SHAPES[-1], torch.bfloat16)
                figure = Figure(
                    name,
                    rows,
                    classes,
                    str(dtype).removeprefix("torch."),
                    ours,
                    theirs,
                    moved / ours / 1e6,
                    copy,
                    TARGETS.get(name) if largest else None,
                )
                figures.append(figure)
                print(figure.line(), flush=True)
    return figures


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, help="where to write the figures")
    chosen = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU is at hand: nothing was measured, and nothing is claimed")
        return
    if not kernels.available(torch.device("cuda")):
        raise SystemExit("Triton is missing; install it beside torch")
    copy = copy_bandwidth()
    print(f"{torch.cuda.get_device_name()}: a copy moves {copy:.0f} GB/s")
    print(f"{'':<36}{'ours ms':>9}{'torch ms':>9}{'faster':>10}{'GB/s':>9}{'of copy':>8}")
    figures = measured(copy)
    if chosen.json:
        lines = [asdict(figure) for figure in figures]
        chosen.json.write_text(json.dumps(lines, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
