"""Seeded draws: distributed as what was returned, the same in any batch, of any vocabulary."""

import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from scipy import stats
from torch import Tensor

from answers import present
from cases import CASES, DEFAULTS, Case, built, logits, spread
from mappings import sampling
from mappings.base import Mapping
from mappings.errors import InvalidParameter
from mappings.evaluate import InvalidRows, evaluate
from mappings.evaluation import Evaluation
from mappings.processor import Processor
from mappings.sampling import Draws
from processor_cases import chain

ROOT = Path(__file__).parents[1]
DRAWS = 100_000
LARGEST = (1 << 64) - 1

each_case = pytest.mark.parametrize("case", CASES, ids=str)
each_default = pytest.mark.parametrize("case", DEFAULTS, ids=str)


def drawn(
    values: Tensor,
    mapping: Mapping,
    seed: int | list[int],
    samples: int = 1,
    *,
    replacement: bool = True,
    processors: Sequence[Processor] = (),
    dtype: torch.dtype | None = None,
    invalid_rows: InvalidRows = "reject",
) -> Evaluation:
    return evaluate(
        values,
        mapping,
        processors=processors,
        outputs=["tokens", "token_log_probabilities", "probabilities", "log_probabilities"],
        draws=Draws(seed=seed, samples=samples, replacement=replacement),
        dtype=dtype,
        invalid_rows=invalid_rows,
    )


def tokens(*args: Any, **named: Any) -> Tensor:
    return present(drawn(*args, **named).tokens)


def assert_distributed(counts: Tensor, masses: Tensor) -> None:
    """A chi-square test at 1 in 1,000; cells that expect fewer than 5 are taken together."""
    total = float(counts.sum())
    expected = masses.double() * total
    assert not bool(counts[masses == 0].any())
    large = expected >= 5
    observed = torch.cat([counts[large], counts[~large].sum().reshape(1)]).double()
    wanted = torch.cat([expected[large], expected[~large].sum().reshape(1)])
    if float(wanted[-1]) < 1e-9:
        observed, wanted = observed[:-1], wanted[:-1]
    wanted = wanted * (observed.sum() / wanted.sum())
    if observed.numel() > 1:
        assert stats.chisquare(observed.numpy(), wanted.numpy()).pvalue > 1e-3


def rows_of(case: Case, rows: int, classes: int, seed: int = 0) -> Tensor:
    values = spread(case, logits(rows, classes, seed)) / (1 if case.name == "margin_softmax" else 3)
    if rows > 1 and classes > 3:
        values[1, 2] = -math.inf
    return values


# Distributed as returned


@each_case
def test_draws_are_distributed_as_the_probabilities_returned(case: Case) -> None:
    values = rows_of(case, 2, 12)
    found = drawn(values, case.mapping(12), [3, LARGEST], DRAWS)
    for row in range(2):
        counts = torch.bincount(present(found.tokens)[row], minlength=12)
        assert int(counts.sum()) == DRAWS
        assert_distributed(counts, present(found.probabilities)[row])


@pytest.mark.parametrize("first", [0, 1 << 32, (1 << 63) - 50_000, LARGEST - DRAWS + 1])
def test_draws_of_neighbouring_seeds_are_distributed_as_the_probabilities(first: int) -> None:
    row = torch.tensor([[0.0, 1.0, -1.0, 2.0, 0.5, -3.0]], dtype=torch.float64)
    seeds = list(range(first, first + DRAWS))
    found = drawn(row.expand(DRAWS, -1), built("softmax"), seeds)
    counts = torch.bincount(present(found.tokens)[:, 0], minlength=6)
    assert_distributed(counts, torch.softmax(row[0], -1))


def test_draws_do_not_depend_on_each_other() -> None:
    row = torch.tensor([[0.0, 1.0, -1.0]], dtype=torch.float64)
    found = tokens(row, built("softmax"), 11, DRAWS)[0]
    pairs = torch.bincount(found[:-1] * 3 + found[1:], minlength=9)
    p = torch.softmax(row[0], -1)
    assert_distributed(pairs, (p.unsqueeze(-1) * p).flatten())


def test_draws_of_different_seeds_do_not_depend_on_each_other() -> None:
    row = torch.tensor([[0.0, 1.0, -1.0]], dtype=torch.float64)
    p = torch.softmax(row[0], -1)
    for first, second in ((0, 1), (1, 1 << 32), (LARGEST, LARGEST - 1), (5, 5 << 32)):
        both = tokens(row.expand(2, -1), built("softmax"), [first, second], DRAWS)
        pairs = torch.bincount(both[0] * 3 + both[1], minlength=9)
        assert_distributed(pairs, (p.unsqueeze(-1) * p).flatten())


def test_draws_do_not_depend_on_the_noise_of_the_same_seed() -> None:
    # gumbel_softmax with seed s, sampled with seed s: two streams.
    seeds = list(range(50_000))
    values = torch.zeros(50_000, 3, dtype=torch.float64)
    found = drawn(values, built({"name": "gumbel_softmax", "seed": seeds}), seeds)
    winners = present(found.probabilities).argmax(-1)
    chosen = present(found.probabilities).gather(-1, present(found.tokens)).squeeze(-1)
    agreed = (winners == present(found.tokens)[:, 0]).double()
    expected = present(found.probabilities).amax(-1)
    spread_of = (expected * (1 - expected)).sum().sqrt()
    assert abs(float((agreed - expected).sum())) <= 4 * float(spread_of)
    assert bool((chosen > 0).all())


def test_draws_after_a_chain_are_distributed_as_returned() -> None:
    values = 2 * logits(1, 40, seed=3)
    steps = chain(
        {"name": "temperature", "value": 0.8},
        {"name": "top_k", "k": 20},
        {"name": "top_p", "p": 0.9},
        {"name": "min_p", "ratio": 0.02},
    )
    found = drawn(values, built("softmax"), 5, DRAWS, processors=steps)
    counts = torch.bincount(present(found.tokens)[0], minlength=40)
    assert_distributed(counts, present(found.probabilities)[0])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_draws_are_from_the_distribution_in_the_dtype_returned(dtype: torch.dtype) -> None:
    # In float32 the smallest is exactly 0 and must not be drawn.
    values = torch.tensor([[0.0, -200.0, -1.0]], dtype=torch.float64)
    found = drawn(values, built("softmax"), 1, DRAWS, dtype=dtype)
    p = present(found.probabilities)[0]
    assert (float(p[1]) > 0) == (dtype == torch.float64)
    assert_distributed(torch.bincount(present(found.tokens)[0], minlength=3), p)


# Reproducible


@each_default
@pytest.mark.parametrize("replacement", [True, False], ids=["with", "without"])
def test_the_same_row_and_seed_give_the_same_tokens_anywhere(case: Case, replacement: bool) -> None:
    classes = 30
    request = case.request(classes)
    values = rows_of(case, 64, classes) / 4
    row = rows_of(case, 1, classes, seed=9) / 4
    samples = 5 if replacement else 1
    seed = LARGEST - 5
    alone = drawn(row, built(request), seed, samples, replacement=replacement)
    again = drawn(row, built(request), seed, samples, replacement=replacement)
    assert torch.equal(present(alone.tokens), present(again.tokens))
    for place in (0, 1, 31, 63):
        batch = values.clone()
        batch[place] = row
        seeds = [i * 77 for i in range(64)]
        seeds[place] = seed
        found = drawn(batch, built(request), seeds, samples, replacement=replacement)
        assert torch.equal(present(found.tokens)[place], present(alone.tokens)[0])
        assert torch.equal(
            present(found.token_log_probabilities)[place],
            present(alone.token_log_probabilities)[0],
        )


@pytest.mark.parametrize("replacement", [True, False], ids=["with", "without"])
def test_two_rows_of_one_seed_draw_the_same(replacement: bool) -> None:
    values = logits(1, 20).expand(5, -1)
    found = tokens(values, built("softmax"), [7, 8, 7, 9, 7], 6, replacement=replacement)
    assert torch.equal(found[0], found[2])
    assert torch.equal(found[0], found[4])
    assert not torch.equal(found[0], found[1])
    every = tokens(values, built("softmax"), 7, 6, replacement=replacement)
    assert torch.equal(every, found[0].expand(5, -1))


@pytest.mark.parametrize("replacement", [True, False], ids=["with", "without"])
def test_more_samples_begin_with_the_fewer(replacement: bool) -> None:
    values = logits(3, 40)
    many = tokens(values, built("softmax"), [1, 2, 3], 30, replacement=replacement)
    for samples in (1, 2, 7, 29):
        few = tokens(values, built("softmax"), [1, 2, 3], samples, replacement=replacement)
        assert torch.equal(few, many[:, :samples])


@pytest.mark.parametrize("replacement", [True, False], ids=["with", "without"])
@pytest.mark.parametrize("classes", [40, 20_000])
def test_compact_and_dense_answers_draw_the_same(replacement: bool, classes: int) -> None:
    values = 3 * logits(4, classes, seed=2)
    seeds = [5, 6, 7, LARGEST]
    compact = drawn(
        values, built({"name": "sparse_softmax", "k": 9}), seeds, 9, replacement=replacement
    )
    steps = chain({"name": "top_k", "k": 9})
    dense = drawn(values, built("softmax"), seeds, 9, replacement=replacement, processors=steps)
    gap = present(compact.probabilities) - present(dense.probabilities)
    assert float(gap.abs().max()) <= 1e-15
    assert torch.equal(present(compact.tokens), present(dense.tokens))
    wide = torch.cat([values, torch.full((4, 500), -math.inf, dtype=values.dtype)], dim=-1)
    padded = tokens(wide, built("softmax"), seeds, 9, replacement=replacement, processors=steps)
    assert torch.equal(padded, present(dense.tokens))


def test_all_seeds_of_64_bits_differ() -> None:
    seeds = [0, 1, (1 << 31) - 1, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, LARGEST - 1, LARGEST]
    values = torch.zeros(len(seeds), 1 << 20)
    found = tokens(values, built("softmax"), seeds, 4)
    assert len({tuple(row) for row in found.tolist()}) == len(seeds)


@pytest.mark.parametrize("seed", [-1, 1 << 64, 1.0, "1", True, None, [1, -1]])
def test_what_is_no_seed_is_refused(seed: Any) -> None:
    with pytest.raises(ValidationError):
        Draws(seed=seed)


@pytest.mark.parametrize("samples", [0, -1, 1.5, 1 << 40, True, None])
def test_what_is_no_count_of_samples_is_refused(samples: Any) -> None:
    with pytest.raises(ValidationError):
        Draws(seed=1, samples=samples)


def test_seeds_for_another_number_of_rows_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="seed is given for 2 rows of 3"):
        tokens(logits(3, 5), built("softmax"), [1, 2])


# Never and ever


@each_case
@pytest.mark.parametrize("replacement", [True, False], ids=["with", "without"])
def test_a_class_of_probability_zero_is_never_drawn(case: Case, replacement: bool) -> None:
    values = spread(case, logits(300, 9, seed=6))
    values[:, 4] = -math.inf
    samples = 20 if replacement else 1
    found = drawn(values, case.mapping(9), list(range(300)), samples, replacement=replacement)
    held = present(found.probabilities).gather(-1, present(found.tokens))
    assert bool((held > 0).all())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize(
    ("row", "first", "last"),
    [
        ([0.0, 0.0, 0.0], 0, 2),
        ([-math.inf, 1.0, 2.0, 3.0, -math.inf], 1, 3),
        ([-math.inf, 1.0, -math.inf], 1, 1),
        ([0.0, -1000.0, 0.0, -1000.0], 0, 2),
        ([-30.0, 0.0, -30.0], 0, 2),
    ],
)
def test_the_ends_of_the_uniforms_draw_the_ends_of_the_support(
    row: list[float], first: int, last: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = torch.tensor([[2.0**-54, 1.0 - 2.0**-53, 1.0]], dtype=torch.float64)
    monkeypatch.setattr(sampling, "uniforms", lambda *_: ends)
    values = torch.tensor([row], dtype=torch.float64)
    assert tokens(values, built("softmax"), 0, 3, dtype=dtype).tolist() == [[first, last, last]]


def test_the_first_and_the_last_class_of_a_vocabulary_can_be_drawn() -> None:
    values = torch.full((1, 151_936), -20.0)
    values[0, [0, -1]] = 0.0
    counts = torch.bincount(tokens(values, built("softmax"), 3, 1000)[0], minlength=151_936)
    assert int(counts[0]) > 400
    assert int(counts[-1]) > 400


@each_default
def test_log_probabilities_are_those_of_the_tokens(case: Case) -> None:
    values = rows_of(case, 5, 17)
    for dtype in (torch.float64, torch.float32):
        found = drawn(values, case.mapping(17), 4, 50, dtype=dtype)
        logs = present(found.log_probabilities).gather(-1, present(found.tokens))
        assert torch.equal(present(found.token_log_probabilities), logs)
        assert present(found.token_log_probabilities).dtype == dtype
        assert present(found.tokens).dtype == torch.int64
        assert bool(logs.isfinite().all())


# Without replacement


def test_without_replacement_tokens_are_distinct_and_exhaust_the_support() -> None:
    for case in DEFAULTS:
        values = rows_of(case, 20, 12, seed=4)
        sizes = present(evaluate(values, case.mapping(12), outputs=["support_size"]).support_size)
        for row in range(20):
            size = int(sizes[row])
            one = values[row : row + 1]
            found = drawn(one, case.mapping(12), row, size, replacement=False)
            support = (present(found.probabilities)[0] > 0).nonzero().flatten().tolist()
            assert sorted(present(found.tokens)[0].tolist()) == support
            with pytest.raises(InvalidParameter, match=f"{size}.*{size + 1} samples") as caught:
                drawn(one, case.mapping(12), row, size + 1, replacement=False)
            assert caught.value.problems[0].loc == ("samples",)


def test_asking_for_more_than_the_support_names_the_row() -> None:
    values = torch.tensor([[0.0, 0.5, 0.75], [0.0, 9, 0]], dtype=torch.float64)
    with pytest.raises(InvalidParameter, match="row 1"):
        drawn(values, built("sparsemax"), 1, 2, replacement=False)


@pytest.mark.parametrize(
    "request_",
    [
        {"name": "softmax"},
        {"name": "sparse_softmax", "k": 4},
        {"name": "entmax", "temperature": 2.0},
        {"name": "t_softmax", "t": 3.0},
    ],
    ids=lambda r: r["name"],
)
def test_pairs_without_replacement_follow_the_sequential_law(request_: dict[str, Any]) -> None:
    row = torch.tensor([[0.0, 1.0, -1.0, 1.5, 0.5, -2.0]], dtype=torch.float64)
    seeds = list(range(DRAWS))
    found = drawn(row.expand(DRAWS, -1), built(request_), seeds, 2, replacement=False)
    first, second = present(found.tokens).unbind(-1)
    p = present(found.probabilities)[0]
    assert_distributed(torch.bincount(first, minlength=6), p)
    # p_i · p_j/(1 − p_i) for j ≠ i.
    pairs = p.unsqueeze(-1) * p / (1 - p).unsqueeze(-1) * (1 - torch.eye(6))
    assert_distributed(torch.bincount(first * 6 + second, minlength=36), pairs.flatten())


def test_log_probabilities_without_replacement_are_those_of_the_returned_distribution() -> None:
    values = logits(3, 9)
    found = drawn(values, built("softmax"), 1, 9, replacement=False)
    logs = present(found.log_probabilities).gather(-1, present(found.tokens))
    assert torch.equal(present(found.token_log_probabilities), logs)


# Bad rows and large vocabularies


@pytest.mark.parametrize("replacement", [True, False], ids=["with", "without"])
def test_a_bad_row_has_no_tokens_and_leaves_the_others_theirs(replacement: bool) -> None:
    values = logits(3, 8)
    wanted = tokens(values[[0, 2]], built("sparsemax"), [4, 6], 2, replacement=replacement)
    values[1, 3] = math.nan
    found = drawn(
        values, built("sparsemax"), [4, 5, 6], 2, replacement=replacement, invalid_rows="report"
    )
    assert torch.equal(present(found.tokens)[[0, 2]], wanted)
    assert present(found.tokens)[1].tolist() == [-1, -1]
    assert bool(present(found.token_log_probabilities)[1].isnan().all())


def test_an_empty_batch_draws_nothing() -> None:
    found = drawn(torch.empty(0, 5), built("softmax"), [], 3)
    assert present(found.tokens).shape == (0, 3)
    assert present(found.token_log_probabilities).shape == (0, 3)


HUGE = """
import resource
import torch
from mappings.evaluate import evaluate
from mappings.registry import MAPPINGS
from mappings.sampling import Draws

CLASSES = 20_000_000
values = torch.zeros(1, CLASSES)
values[0, 5:1_000_000] = -torch.inf
values[0, -1] = 15.0


def drawn(name, samples, replacement):
    found = evaluate(
        values, MAPPINGS[name](name=name), outputs=["tokens", "token_log_probabilities"],
        draws=Draws(seed=3, samples=samples, replacement=replacement),
    )
    return found.tokens[0]


tokens = drawn("softmax", 2000, True)
assert tokens.min() >= 0 and tokens.max() == CLASSES - 1, tokens
assert not bool(((tokens >= 5) & (tokens < 1_000_000)).any())
last = tokens == CLASSES - 1
# e^15 of e^15 + 19 million: about 0.147 of the draws.
assert 220 < int(last.sum()) < 370, last.sum()
beyond = tokens[~last] > 1 << 24
assert 0.13 < beyond.double().mean() < 0.21, beyond.double().mean()
assert len(set(tokens[~last].tolist())) > 0.999 * int((~last).sum())

held = [3, 1_000_000, 1 << 24, (1 << 24) + 1, CLASSES - 2, CLASSES - 1]
values[0, held] = 15.0
assert sorted(drawn("sparsemax", 6, False).tolist()) == held
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def test_twenty_million_classes_are_drawn_from_within_three_gigabytes() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", HUGE],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 3000


def test_nothing_is_drawn_with_torch_multinomial() -> None:
    for path in (ROOT / "mappings").rglob("*.py"):
        source = path.read_text(encoding="utf-8").replace("torch.multinomial is not", "")
        assert "multinomial(" not in source
        assert "manual_seed" not in source


def test_numbers_of_a_known_seed_stay_what_they_are() -> None:
    """The seed of a stored answer draws it again in any later version.

    The uniforms are those of Random123's Philox 4×32-10, computed here in plain integers.
    """
    row = torch.zeros(1, 1000, dtype=torch.float64)
    seed = 0x0123456789ABCDEF
    found = tokens(row, built("softmax"), seed, 5)[0].tolist()
    wanted = []
    for index in range(5):
        words = philox([index // 2, 0, 2, 0], [seed & 0xFFFFFFFF, seed >> 32])
        high, low = words[2 * (index % 2) : 2 * (index % 2) + 2]
        chance = (((high << 32) | low) >> 11) / 2**53
        wanted.append(int(chance * 1000))
    assert found == wanted


def philox(counter: list[int], key: list[int]) -> list[int]:
    """Ten rounds, from the paper: multiply the even words, cross over, bump the key."""
    c, k = list(counter), list(key)
    for _ in range(10):
        first, second = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [
            (second >> 32) ^ c[1] ^ k[0],
            second & 0xFFFFFFFF,
            (first >> 32) ^ c[3] ^ k[1],
            first & 0xFFFFFFFF,
        ]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return [int(word) for word in c]
