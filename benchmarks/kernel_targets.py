"""What the kernels are to reach, beside what was measured."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

Form = Literal["torch.softmax", "ours", "dense", "package", "sorting"]


class Setting(NamedTuple):
    """What rows a contender was measured on."""

    rows: int
    classes: int
    logits: str
    dtype: str


class Figure(NamedTuple):
    """What was measured: a contender's form on rows; the name is "" for torch.softmax."""

    name: str
    form: Form
    setting: Setting


Seconds = Mapping[Figure, float]
"""The median of a call (in seconds)."""

WIDE = Setting(32, 128_256, "σ = 3", "float32")
FLAT = WIDE._replace(logits="σ = 0.01")
SHORTER, LONGER = WIDE._replace(classes=32_000), WIDE._replace(classes=151_936)
ONE = WIDE._replace(rows=1)
SMALL = WIDE._replace(rows=256, classes=1000)

RELU = {"sparsemax": 20.0, "entmax 1.5": 20.0, "entmax 1.3": 50.0}
"""By how much to be faster than the entmax package."""

SIX = (*RELU, "top_k", "top_p", "min_p")


@dataclass(frozen=True)
class Target:
    """A figure and its bound.

    Attributes:
        value: what was measured, a ratio; None: it was not.
        most: whether the bound is the most it may be, or the least.
    """

    words: str
    value: float | None
    bound: float
    most: bool = True

    def verdict(self) -> str:
        """Whether it passes."""
        if self.value is None:
            return "not measured"
        passes = self.value <= self.bound if self.most else self.value >= self.bound
        return "pass" if passes else "falls short"


def ratio(seconds: Seconds, above: Figure, below: Figure) -> float | None:
    """By how much the one takes longer than the other; None where one was not measured."""
    if above in seconds and below in seconds:
        return seconds[above] / seconds[below]
    return None


def softmaxes(seconds: Seconds, name: str, form: Form, setting: Setting) -> float | None:
    """How many calls of torch.softmax one call takes."""
    return ratio(seconds, Figure(name, form, setting), Figure("", "torch.softmax", setting))


def faster(seconds: Seconds, name: str, setting: Setting) -> float | None:
    """By how much our compact answer is faster than the entmax package."""
    return ratio(seconds, Figure(name, "package", setting), Figure(name, "ours", setting))


def targets(seconds: Seconds) -> Iterator[Target]:
    """Every target there is, in order."""
    floor = "× torch.softmax"
    for name in SIX:
        yield Target(f"{name}: compact, {floor}", softmaxes(seconds, name, "ours", WIDE), 4)
    for name in SIX:
        yield Target(f"{name}: dense, {floor}", softmaxes(seconds, name, "dense", WIDE), 6)
    yield Target(f"draw, {floor}", softmaxes(seconds, "draw", "ours", WIDE), 4)
    for name, least in RELU.items():
        words = f"{name}: × as fast as the entmax package"
        yield Target(words, faster(seconds, name, WIDE), least, most=False)
    for name in RELU:
        words = f"{name}, σ = 0.01: × as fast as the entmax package"
        yield Target(words, faster(seconds, name, FLAT), 5, most=False)
    for name in SIX:
        longer, shorter = (Figure(name, "ours", setting) for setting in (LONGER, SHORTER))
        grown = ratio(seconds, longer, shorter)
        linear = LONGER.classes / SHORTER.classes
        words = f"{name}: growth from n = 32,000 to 151,936, × linear"
        yield Target(words, None if grown is None else grown / linear, 1.2)
    for name in SIX:
        words = f"{name}, 1 × 128,256, {floor}"
        yield Target(words, softmaxes(seconds, name, "ours", ONE), 8)
    for name in SIX:
        words = f"{name}, 256 × 1,000, {floor}"
        yield Target(words, softmaxes(seconds, name, "ours", SMALL), 12)
    for name in RELU:
        words = f"{name}, 256 × 1,000: × as fast as the entmax package"
        yield Target(words, faster(seconds, name, SMALL), 5, most=False)
