"""The chains of examples/engines.py keep what each engine's published rule keeps.

The rules are written here from their descriptions, in plain Python, apart from the processors.
"""

import math
import sys
from collections.abc import Callable

import numpy as np
import pytest

import engines
from engines import ENGINES, LOGITS, SETTINGS, Settings, kept_here
from server import shared_server

Row = list[float]
Kept = dict[int, float]
"""The tokens an engine has left, with their logits."""


def softmax(kept: Kept) -> dict[int, float]:
    top = max(kept.values())
    masses = {token: math.exp(x - top) for token, x in kept.items()}
    total = math.fsum(masses.values())
    return {token: mass / total for token, mass in masses.items()}


def heated(kept: Kept, temperature: float) -> Kept:
    return {token: x / temperature for token, x in kept.items()}


def at_least_the_kth(kept: Kept, k: int) -> Kept:
    """A threshold at the k-th largest logit: whatever equals it stays."""
    bar = sorted(kept.values(), reverse=True)[:k][-1]
    return {token: x for token, x in kept.items() if x >= bar}


def first_k(kept: Kept, k: int) -> Kept:
    """The first k of a list sorted by logit."""
    return dict(sorted(kept.items(), key=lambda item: -item[1])[:k])


def ascending_tail(kept: Kept, p: float) -> Kept:
    """Sorted upwards, what stands within a cumulative mass of 1 − p goes, but the last."""
    masses = softmax(kept)
    # Which of two equal logits stands lower is left open by the rule; here the higher id.
    order = sorted(kept, key=lambda token: (kept[token], -token))
    held, gone = 0.0, set()
    for token in order[:-1]:
        held += masses[token]
        if held <= 1 - p:
            gone.add(token)
    return {token: x for token, x in kept.items() if token not in gone}


def until_reached(kept: Kept, p: float) -> Kept:
    """From the most probable down, up to the token with which the sum reaches p."""
    masses, held, found = softmax(kept), 0.0, {}
    for token in sorted(kept, key=lambda token: -kept[token]):
        found[token] = kept[token]
        held += masses[token]
        if held >= p:
            break
    return found


def above_the_pivot(kept: Kept, p: float) -> Kept:
    """What can be sampled: tokens for which the more probable ones hold less than p."""
    masses = softmax(kept)
    return {
        token: kept[token]
        for token, mass in masses.items()
        if math.fsum(other for other in masses.values() if other > mass) < p
    }


def near_the_top(kept: Kept, ratio: float) -> Kept:
    """Probability of at least a share of the largest."""
    masses = softmax(kept)
    bar = ratio * max(masses.values())
    return {token: x for token, x in kept.items() if masses[token] >= bar}


def transformers_rule(kept: Kept, given: Settings) -> Kept:
    kept = at_least_the_kth(heated(kept, given.temperature), given.top_k)
    return near_the_top(ascending_tail(kept, given.top_p), given.min_p)


def vllm_rule(kept: Kept, given: Settings) -> Kept:
    kept = near_the_top(heated(kept, given.temperature), given.min_p)
    return ascending_tail(at_least_the_kth(kept, given.top_k), given.top_p)


def flashinfer_rule(kept: Kept, given: Settings) -> Kept:
    kept = at_least_the_kth(heated(kept, given.temperature), given.top_k)
    return above_the_pivot(kept, given.top_p)


def llama_cpp_rule(kept: Kept, given: Settings) -> Kept:
    kept = until_reached(first_k(kept, given.top_k), given.top_p)
    return heated(near_the_top(kept, given.min_p), given.temperature)


RULES: dict[str, Callable[[Kept, Settings], Kept]] = {
    "transformers": transformers_rule,
    "vLLM": vllm_rule,
    "FlashInfer top_k_first": flashinfer_rule,
    "llama.cpp": llama_cpp_rule,
}

SETTINGS_TRIED = [
    Settings(),
    SETTINGS,
    Settings(temperature=0.3, top_k=7, top_p=0.7, min_p=0.02),
    Settings(temperature=3.0, top_k=50, top_p=0.9, min_p=0.1),
    Settings(temperature=1.5, top_k=1000, top_p=0.5, min_p=0.3),
    Settings(temperature=2.0, top_k=1, top_p=0.99, min_p=0.001),
]


def rows(classes: int, width: float, seed: int) -> list[Row]:
    found: list[Row] = np.random.default_rng(seed).normal(0, width, (8, classes)).tolist()
    return found


def test_every_engine_has_a_rule() -> None:
    assert set(ENGINES) == set(RULES)


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("given", SETTINGS_TRIED, ids=str)
@pytest.mark.parametrize("classes", [1, 2, 10, 300])
@pytest.mark.parametrize("width", [0.5, 3.0])
def test_an_engines_chain_keeps_what_its_rule_keeps(
    name: str, given: Settings, classes: int, width: float
) -> None:
    logits = rows(classes, width, seed=classes)
    found = kept_here(logits, ENGINES[name](given))
    for row, kept in zip(logits, found, strict=True):
        wanted = RULES[name](dict(enumerate(row)), given)
        assert sorted(kept) == sorted(wanted)
        assert kept == sorted(wanted, key=lambda token: (-wanted[token], token))


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("given", SETTINGS_TRIED, ids=str)
@pytest.mark.parametrize("classes", [10, 300])
def test_an_engines_chain_keeps_what_its_rule_keeps_of_rows_full_of_ties(
    name: str, given: Settings, classes: int
) -> None:
    # As of 16-bit logits: a step of 0.3 makes several equal at most boundaries.
    logits = [[round(x / 0.3) * 0.3 for x in row] for row in rows(classes, 1.5, seed=2)]
    found = kept_here(logits, ENGINES[name](given))
    for row, kept in zip(logits, found, strict=True):
        assert sorted(kept) == sorted(RULES[name](dict(enumerate(row)), given))


def test_the_row_shown_tells_all_four_apart() -> None:
    kept = [tuple(kept_here(LOGITS, engine(SETTINGS))[0]) for engine in ENGINES.values()]
    assert len(set(kept)) == 4


def test_llama_cpp_cuts_before_it_heats_and_the_others_after() -> None:
    row = [[2.0, 1.0, 0.0, -1.0]]
    cold, hot = (Settings(temperature=t, top_k=4, top_p=0.8, min_p=0.0) for t in (1.0, 5.0))
    for name, engine in ENGINES.items():
        same = kept_here(row, engine(cold)) == kept_here(row, engine(hot))
        assert same == (name == "llama.cpp")


def test_only_llama_cpp_keeps_exactly_k_of_equals() -> None:
    row = [[1.0, 2.0, 2.0, 2.0, 3.0]]
    given = Settings(top_k=3, top_p=1.0, min_p=0.0)
    for name, engine in ENGINES.items():
        kept = kept_here(row, engine(given))[0]
        assert kept == ([4, 1, 2] if name == "llama.cpp" else [4, 1, 2, 3])


@pytest.mark.parametrize("asked", ["here", "of a server"])
def test_the_example_prints_one_line_an_engine(
    asked: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = [] if asked == "here" else ["--url", shared_server().url]
    monkeypatch.setattr(sys, "argv", ["engines.py", *url])
    engines.main()
    lines = capsys.readouterr().out.splitlines()[-4:]
    for name, line in zip(ENGINES, lines, strict=True):
        assert line.startswith(name)
        assert line.endswith(str(kept_here(LOGITS, ENGINES[name](SETTINGS))[0]))
