"""What the kernels cost beside torch.softmax, the entmax package and baselines that sort.

    make bench ONLY=kernels ARGS=--quick     # what the targets need: some minutes on two cores
    make bench ONLY=kernels                  # every mapping, processor, shape and kind: hours

`--only NAME`, `--rows`, `--classes` and `--logits` cut the full table down. All contenders of one
setting take turns in one process, a torch.softmax of the same logits before each; a figure is the
median of its turns. The machine is shared: ratios hold, absolute figures do not, and where others
keep its processors busy only `--cpu` holds, which counts the processor time of one thread. The
figures are also written to benchmarks/out/kernels.json and drawn in benchmarks/out/kernels.png.
"""

import argparse
import json
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # As the server has it, before torch.

import matplotlib as mpl
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from contenders import Contender, Kernel, contenders
from kernel_targets import (
    FLAT,
    LONGER,
    ONE,
    RELU,
    SHORTER,
    SIX,
    SMALL,
    WIDE,
    Figure,
    Form,
    Seconds,
    Setting,
    ratio,
    targets,
)

ROWS = (1, 8, 32, 256)
CLASSES = (1000, 32_000, 128_256, 151_936)
LOGITS = ("σ = 3", "σ = 1", "σ = 10", "σ = 0.01", "ties", "peaked")
DTYPES = ("float32", "bfloat16")

TURNS = 9
ENOUGH = 2.0
"""A call that has taken so long in all takes no further turns (in seconds)."""

PATIENCE = 60.0
"""A call that would take longer, going by a smaller one, is left out (in seconds)."""

OUT = Path(__file__).parent / "out"

console = Console(width=140)

Clock = Callable[[], float]

Plan = dict[Setting, dict[str, tuple[Form, ...]]]
"""What is measured: for each setting the contenders' names and forms."""


def logits_of(setting: Setting) -> Tensor:
    """The rows of a setting."""
    generator = torch.Generator().manual_seed(setting.rows)
    normal = torch.randn(setting.rows, setting.classes, generator=generator)
    if setting.logits == "ties":
        normal = (3 * normal).bfloat16().float()
    elif setting.logits == "peaked":
        normal[:, setting.classes // 2] = 30.0
    else:
        normal *= float(setting.logits.removeprefix("σ = "))
    return normal.to(getattr(torch, setting.dtype))


def quick_plan() -> Plan:
    """What the targets need."""
    compared: dict[str, tuple[Form, ...]] = dict.fromkeys(RELU, ("ours", "package"))
    alone: dict[str, tuple[Form, ...]] = dict.fromkeys(SIX, ("ours",))
    wide: dict[str, tuple[Form, ...]] = dict.fromkeys(SIX, ("ours", "dense", "package", "sorting"))
    return {
        WIDE: {**wide, "softmax": ("dense",), "draw": ("ours",)},
        FLAT: {**compared, "top_k": ("ours",), "top_p": ("ours",), "min_p": ("ours",)},
        SHORTER: alone,
        LONGER: alone,
        ONE: {**alone, **compared, "perturb_max": ("dense",)},
        SMALL: {**alone, **compared},
    }


def full_plan(rows: Sequence[int], classes: Sequence[int], logits: Sequence[str]) -> Plan:
    """Everything, smaller rows first."""
    forms: tuple[Form, ...] = ("ours", "dense", "package", "sorting")
    everyone = {one.name: forms for one in contenders(CLASSES[0])}
    settings = product(rows, classes, logits, DTYPES)
    return {Setting(*setting): everyone for setting in settings}


def kernels_of(one: Contender, forms: Iterable[Form]) -> Iterator[tuple[Form, Kernel]]:
    """The forms that a contender has."""
    given = {"ours": one.ours, "dense": one.dense, "package": one.package, "sorting": one.sorting}
    for form in forms:
        kernel = given[form]
        if kernel is not None:
            yield form, kernel


def is_too_long(figure: Figure, seconds: Seconds) -> bool:
    """Whether a smaller call tells that this one takes longer than we wait."""
    size = figure.setting.rows * figure.setting.classes
    return any(
        taken * size / (one.setting.rows * one.setting.classes) > PATIENCE
        for one, taken in seconds.items()
        if one[:2] == figure[:2] and one.setting.rows * one.setting.classes < size
    )


def measure(
    setting: Setting, asked: dict[str, tuple[Form, ...]], known: Seconds, clock: Clock
) -> dict[Figure, float]:
    """The medians of one setting's contenders, which take turns."""
    logits = logits_of(setting)
    floor = Figure("", "torch.softmax", setting)
    work = {
        Figure(one.name, form, setting): kernel
        for one in contenders(setting.classes)
        for form, kernel in kernels_of(one, asked.get(one.name, ()))
    }
    work = {figure: kernel for figure, kernel in work.items() if not is_too_long(figure, known)}
    taken: dict[Figure, list[float]] = defaultdict(list)
    for turn in range(TURNS):
        for figure, kernel in work.items():
            if sum(taken[figure]) > ENOUGH:
                continue
            taken[floor].append(timed(lambda given: torch.softmax(given, -1), logits, clock))
            taken[figure].append(timed(kernel, logits, clock))
            # The first call warms up; of a long one it is the only one.
            if turn == 0 and taken[figure][0] < ENOUGH:
                taken[figure].clear()
    return {figure: statistics.median(times) for figure, times in taken.items()}


def timed(kernel: Kernel, logits: Tensor, clock: Clock) -> float:
    """What one call takes (in seconds)."""
    started = clock()
    kernel(logits)
    return clock() - started


def show_figures(seconds: Seconds) -> None:
    """Prints the table of everything measured."""
    table = Table(title="compact answers; times are medians, × torch.softmax in brackets")
    columns = ("", "logits", "dtype", "rows", "classes", "compact", "dense", "package", "sorting")
    for column in (*columns, "per class"):
        table.add_column(column, justify="right" if column in columns[3:] else "left")
    lines = sorted({(f.name, f.setting) for f in seconds if f.name})
    shortest: dict[tuple[object, ...], Figure] = {}
    for name, setting in lines:
        floor = seconds[Figure("", "torch.softmax", setting)]
        cells = []
        for form in ("ours", "dense", "package", "sorting"):
            taken = seconds.get(Figure(name, form, setting))
            cells.append("" if taken is None else f"{taken * 1e3:.1f} ms ({taken / floor:.1f})")
        figure = Figure(name, "ours", setting)
        first = shortest.setdefault((name, setting.rows, *setting[2:]), figure)
        grown = ratio(seconds, figure, first)
        linear = setting.classes / first.setting.classes
        growth = "" if grown is None else f"{grown / linear:.2f}"
        shape = (f"{setting.rows}", f"{setting.classes:,}")
        table.add_row(name, setting.logits, setting.dtype, *shape, *cells, growth)
    console.print(table)
    console.print("per class: the compact answer's time a class, against the fewest classes above")


def show_targets(seconds: Seconds) -> None:
    """Prints every target beside its figure."""
    table = Table(title="targets, at 32 × 128,256 float32, σ = 3, where nothing else is said")
    for column in ("", "measured", "bound", "verdict"):
        table.add_column(column, justify="right" if column else "left")
    for target in targets(seconds):
        value = "" if target.value is None else f"{target.value:.2f}"
        bound = f"{'≤' if target.most else '≥'} {target.bound:g}"
        table.add_row(target.words, value, bound, target.verdict())
    console.print(table)
    probit = seconds.get(Figure("perturb_max", "dense", ONE))
    if probit is not None:
        console.print(f"perturb_max, normal noise: {probit:.1f} s a row of 128,256")


def write(seconds: Seconds) -> None:
    """Writes the figures for plotting, and a picture of float32 at σ = 3."""
    OUT.mkdir(exist_ok=True)
    lines = [
        {"name": f.name, "form": f.form, **f.setting._asdict(), "seconds": taken}
        for f, taken in seconds.items()
    ]
    (OUT / "kernels.json").write_text(json.dumps(lines, indent=1, ensure_ascii=False))
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    usual = {f: t for f, t in seconds.items() if f.setting[2:] == WIDE[2:]}
    heights = sorted({f.setting.rows for f in usual})
    names = sorted({f.name for f in usual if f.name})
    if not heights:
        return
    figure, panels = plt.subplots(1, len(heights), sharey=True, squeeze=False, layout="constrained")
    figure.set_size_inches(4 * len(heights) + 2, 6)
    for panel, rows in zip(panels[0], heights, strict=True):
        panel.set(title=f"rows: {rows}", xlabel="classes", xscale="log", yscale="log")
        for index, (name, form) in enumerate(product(names, ("ours", "package"))):
            points = sorted(
                (f.setting.classes, taken / usual[Figure("", "torch.softmax", f.setting)])
                for f, taken in usual.items()
                if (f.name, f.form, f.setting.rows) == (name, form, rows)
            )
            if points:
                style, color = ("o-" if form == "ours" else "x:"), f"C{index // 2 % 10}"
                panel.plot(*zip(*points, strict=True), style, color=color, label=f"{name}, {form}")
        panel.legend(fontsize="x-small")
    panels[0][0].set_ylabel("time, × torch.softmax")
    figure.savefig(OUT / "kernels.png", dpi=120)


def main() -> None:
    """Measures, prints, writes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="only what the targets need")
    parser.add_argument("--cpu", action="store_true", help="processor time of one thread")
    parser.add_argument("--only", action="append", help="a mapping or processor; repeatable")
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--classes", type=int, nargs="+", default=CLASSES)
    parser.add_argument("--logits", choices=LOGITS, nargs="+", default=LOGITS)
    given = parser.parse_args()
    clock = time.process_time if given.cpu else time.perf_counter
    if given.cpu:
        torch.set_num_threads(1)
    plan = quick_plan() if given.quick else full_plan(given.rows, given.classes, given.logits)
    seconds: dict[Figure, float] = {}
    for setting, asked in plan.items():
        console.print("measuring", *setting, highlight=False)
        wanted = {n: forms for n, forms in asked.items() if not given.only or n in given.only}
        seconds.update(measure(setting, wanted, seconds, clock))
        write(seconds)
    show_figures(seconds)
    show_targets(seconds)


if __name__ == "__main__":
    main()
