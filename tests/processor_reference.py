"""The 15 processors in plain Python and 80-bit numpy, written from their definitions alone.

Sorted and summed in exact order, one row at a time; slow on purpose.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Row = list[float]

MASKED = -math.inf
SLACK = np.longdouble("1e-6")


def after(row: Row, *steps: dict[str, Any]) -> Row:
    """The logits of one row after some steps; parameters are scalars and plain lists."""
    for step in steps:
        parameters = {key: value for key, value in step.items() if key != "name"}
        row = STEPS[step["name"]](row, **parameters)
    return row


def masses(row: Row) -> Any:
    """Softmax in 80 bits; 0 where masked."""
    scores = np.array(row, dtype=np.longdouble) - max(row)
    found = np.exp(scores)
    return found / found.sum()


def entropy(p: Any) -> Any:
    """In nats; a class of probability 0 adds nothing."""
    held = p[p > 0]
    return -(held * np.log(held)).sum()


def unmasked(row: Row) -> list[int]:
    return [i for i, x in enumerate(row) if x > MASKED]


def only(row: Row, kept: list[int]) -> Row:
    """The row with all other classes masked; the kept ones must not be none."""
    assert kept, "a step must keep something"
    inside = set(kept)
    return [x if i in inside else MASKED for i, x in enumerate(row)]


def prefix(order: list[int], p: Any, mass: float) -> list[int]:
    """The fewest of `order` whose discarded tail is at most (1 − mass)(1 + 1e-6)."""
    if mass >= 1:
        return order
    ranked = p[order]
    # From the smallest up, so that a tiny tail keeps its digits.
    tails = np.append(np.cumsum(ranked[::-1])[::-1], 0)[1:]
    allowed = (1 - np.longdouble(mass)) * (1 + SLACK)
    return order[: int((tails > allowed).sum()) + 1]


def with_ties(row: Row, order: list[int], kept: list[int], ties: str) -> list[int]:
    if ties == "first":
        return kept
    return [i for i in order if row[i] >= row[kept[-1]]]


def top_k(row: Row, k: int, ties: str = "first") -> Row:
    order = sorted(unmasked(row), key=lambda i: (-row[i], i))
    return only(row, with_ties(row, order, order[:k], ties))


def top_p(row: Row, p: float, ties: str = "first") -> Row:
    order = sorted(unmasked(row), key=lambda i: (-row[i], i))
    return only(row, with_ties(row, order, prefix(order, masses(row), p), ties))


def min_p(row: Row, ratio: float) -> Row:
    p = masses(row)
    return only(row, [i for i in unmasked(row) if p[i] >= np.longdouble(ratio) * p.max()])


def typical(row: Row, mass: float) -> Row:
    p = masses(row)
    h = entropy(p)
    with np.errstate(divide="ignore"):
        distances = np.abs(-np.log(p) - h)
    order = sorted(unmasked(row), key=lambda i: (distances[i], i))
    return only(row, prefix(order, p, mass))


def argmax(row: Row) -> list[int]:
    return [min(unmasked(row), key=lambda i: (-row[i], i))]


def epsilon(row: Row, cutoff: float) -> Row:
    p = masses(row)
    return only(row, [i for i in unmasked(row) if p[i] >= cutoff] or argmax(row))


def eta(row: Row, cutoff: float) -> Row:
    p = masses(row)
    bar = min(np.longdouble(cutoff), np.sqrt(np.longdouble(cutoff)) * np.exp(-entropy(p)))
    return only(row, [i for i in unmasked(row) if p[i] >= bar] or argmax(row))


def top_n_sigma(row: Row, n: float) -> Row:
    present = np.array([row[i] for i in unmasked(row)], dtype=np.longdouble)
    bar = present.max() - np.longdouble(n) * present.std()
    return only(row, [i for i in unmasked(row) if row[i] >= bar])


def top_a(row: Row, a: float) -> Row:
    p = masses(row)
    return only(row, [i for i in unmasked(row) if p[i] >= np.longdouble(a) * p.max() ** 2])


def p_less(row: Row) -> Row:
    p = masses(row)
    return only(row, [i for i in unmasked(row) if p[i] >= (p * p).sum() * (1 - SLACK)])


def temperature(row: Row, value: float) -> Row:
    return [x / value for x in row]


def allow(row: Row, ids: list[int]) -> Row:
    return only(row, [i for i in unmasked(row) if i in ids])


def ban(row: Row, ids: list[int]) -> Row:
    return only(row, [i for i in unmasked(row) if i not in ids])


def bias(row: Row, ids: list[int], values: list[float]) -> Row:
    found = list(row)
    for i, value in zip(ids, values, strict=True):
        found[i] += value
    return found


def repetition_penalty(row: Row, penalty: float, ids: list[int]) -> Row:
    found = list(row)
    for i in set(ids):
        found[i] = row[i] / penalty if row[i] > 0 else row[i] * penalty
    return found


def presence_frequency(
    row: Row, ids: list[int], counts: list[int], presence: float = 0, frequency: float = 0
) -> Row:
    used = [0] * len(row)
    for i, count in zip(ids, counts, strict=True):
        used[i] += count
    return [x - (presence + frequency * n if n else 0) for x, n in zip(row, used, strict=True)]


STEPS: dict[str, Callable[..., Row]] = {
    "temperature": temperature,
    "top_k": top_k,
    "top_p": top_p,
    "min_p": min_p,
    "typical": typical,
    "epsilon": epsilon,
    "eta": eta,
    "top_n_sigma": top_n_sigma,
    "top_a": top_a,
    "p_less": p_less,
    "allow": allow,
    "ban": ban,
    "bias": bias,
    "repetition_penalty": repetition_penalty,
    "presence_frequency": presence_frequency,
}
"""Every processor, by name."""
