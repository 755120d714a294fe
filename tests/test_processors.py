"""The logits processors: closed forms, a plain reference, chains, both tie policies, batches."""

import math
from collections.abc import Sequence
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import Tensor

import processor_reference as plain
from cases import DEFAULTS, Case, built, logits, spread
from mappings.errors import InvalidParameter, InvalidRow
from mappings.evaluate import evaluate
from mappings.parameters import joined
from mappings.processor import Processor
from mappings.registry import PROCESSORS
from processor_cases import (
    CUTTING,
    FIRST,
    MASKED,
    PROCESSOR_CASES,
    PROCESSOR_NAMES,
    ProcessorCase,
    chain,
    step,
    survivors,
)

VOCABULARY = 128_256

each_case = pytest.mark.parametrize("case", PROCESSOR_CASES, ids=str)
each_first = pytest.mark.parametrize("case", FIRST, ids=str)
each_cut = pytest.mark.parametrize("case", [c for c in FIRST if c.name in CUTTING], ids=str)


def applied(values: Tensor, *requests: dict[str, Any]) -> Tensor:
    """The logits after a chain."""
    for processor in chain(*requests):
        values = processor.apply(values, processor.bind(values.shape[0], values.device))
    return values


def after(row: Sequence[float], *requests: dict[str, Any]) -> list[float]:
    found: list[float] = applied(torch.tensor([row], dtype=torch.float64), *requests)[0].tolist()
    return found


def kept(row: Sequence[float], *requests: dict[str, Any]) -> list[int]:
    return [i for i, x in enumerate(after(row, *requests)) if x > MASKED]


# The table


def test_every_registered_processor_has_cases_and_every_case_a_processor() -> None:
    assert set(PROCESSORS) == set(PROCESSOR_NAMES) == set(plain.STEPS)
    assert len(PROCESSORS) == 15


@pytest.mark.parametrize("name", PROCESSOR_NAMES)
def test_every_choice_of_a_static_field_has_a_case(name: str) -> None:
    for field in PROCESSORS[name].static_fields():
        choices = set(get_args(PROCESSORS[name].model_fields[field].annotation))
        tried = {getattr(step(c.request()), field) for c in PROCESSOR_CASES if c.name == name}
        assert choices <= tried


@each_case
def test_the_outcome_is_the_one_computed_by_hand(case: ProcessorCase) -> None:
    assert after(case.row, case.request()) == pytest.approx(case.outcome(), abs=1e-15)


@each_case
def test_the_reference_agrees_with_the_outcome_computed_by_hand(case: ProcessorCase) -> None:
    found = plain.after(case.row, case.request())
    assert [float(x) for x in found] == pytest.approx(case.outcome(), abs=1e-15)


@each_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_narrow_logits_have_the_outcome_of_their_values(
    case: ProcessorCase, dtype: torch.dtype
) -> None:
    values = torch.tensor([case.row], dtype=torch.float64).to(dtype)
    wanted = plain.after(values[0].tolist(), case.request())
    found = survivors(values, case.request())[0]
    if case.label in ("a-tail-within-the-slack", "huge") and dtype != torch.float32:
        # 0.9 is not a 16-bit number, nor is 1e8.
        return
    assert found == [i for i, x in enumerate(wanted) if x > MASKED]


@each_case
def test_the_softmax_of_the_outcome_is_what_is_returned(case: ProcessorCase) -> None:
    values = torch.tensor([case.row], dtype=torch.float64)
    found = evaluate(values, built("softmax"), processors=chain(case.request()))
    wanted = torch.softmax(torch.tensor([case.outcome()], dtype=torch.float64), -1)
    assert found.probabilities is not None
    assert float((found.probabilities - wanted).abs().max()) <= 1e-15


def test_a_repetition_penalty_makes_minus_two_minus_two_point_four() -> None:
    request = {"name": "repetition_penalty", "penalty": 1.2, "ids": [0]}
    assert after([-2.0, 1.0], request) == [-2.4, 1.0]


# The reference, over random rows


def random_requests(generator: np.random.Generator, classes: int) -> list[dict[str, Any]]:
    """One step of each kind with random parameters."""
    ids = [int(i) for i in generator.integers(0, classes, 3)]
    share, sigma = float(generator.random()), float(generator.random() * 3)
    ties = str(generator.choice(["first", "all"]))
    return [
        {"name": "temperature", "value": 0.1 + 2 * share},
        {"name": "top_k", "k": int(generator.integers(1, classes + 2)), "ties": ties},
        {"name": "top_p", "p": share, "ties": ties},
        {"name": "min_p", "ratio": share**3},
        {"name": "typical", "mass": 0.01 + 0.99 * share},
        {"name": "epsilon", "cutoff": share**3},
        {"name": "eta", "cutoff": share**2},
        {"name": "top_n_sigma", "n": sigma},
        {"name": "top_a", "a": share},
        {"name": "p_less"},
        {"name": "allow", "ids": list(range(classes // 2, classes))},
        {"name": "ban", "ids": ids[: max(0, classes - 3)]},
        {"name": "bias", "ids": ids, "values": [share, -sigma, 0.5]},
        {"name": "repetition_penalty", "penalty": 0.5 + share, "ids": ids},
        {
            "name": "presence_frequency",
            "presence": share,
            "frequency": sigma / 9,
            "ids": ids,
            "counts": [1, 0, 4],
        },
    ]


def assert_agrees(row: Sequence[float], *requests: dict[str, Any]) -> None:
    wanted = plain.after(list(row), *requests)
    found = after(row, *requests)
    assert [x > MASKED for x in found] == [x > MASKED for x in wanted], requests
    assert found == pytest.approx([float(x) for x in wanted], abs=1e-12, rel=1e-14)


@pytest.mark.parametrize("name", PROCESSOR_NAMES)
@pytest.mark.parametrize("classes", [1, 2, 3, 10, 60, 300])
@pytest.mark.parametrize("width", [0.3, 2.0, 9.0])
def test_random_rows_agree_with_the_reference(name: str, classes: int, width: float) -> None:
    generator = np.random.default_rng([classes, int(width)])
    for _ in range(3):
        request = next(r for r in random_requests(generator, classes) if r["name"] == name)
        row = generator.normal(0, width, classes)
        assert_agrees(row.tolist(), request)
        if classes > 3:
            row[generator.integers(0, classes // 2, classes // 3)] = MASKED
            assert_agrees(row.tolist(), request)


@pytest.mark.parametrize("name", PROCESSOR_NAMES)
@pytest.mark.parametrize("classes", [2, 10, 60, 1000])
def test_rows_full_of_ties_agree_with_the_reference(name: str, classes: int) -> None:
    generator = np.random.default_rng([3, classes])
    for _ in range(5):
        request = next(r for r in random_requests(generator, classes) if r["name"] == name)
        row = generator.normal(0, 1.5, classes).round(0)
        assert_agrees(row.tolist(), request)


@given(
    st.lists(
        st.one_of(st.sampled_from([0.0, 1.0, -2.5, MASKED]), st.floats(-30, 30)),
        min_size=1,
        max_size=12,
    ),
    st.lists(st.sampled_from(PROCESSOR_NAMES), min_size=1, max_size=4),
    st.integers(0, 1 << 30),
)
def test_any_chain_agrees_with_the_reference(row: list[float], names: list[str], seed: int) -> None:
    row = [0.75, 1.5, *row]
    generator = np.random.default_rng(seed)
    requests: list[dict[str, Any]] = []
    for name in names:
        request = next(r for r in random_requests(generator, len(row)) if r["name"] == name)
        if name in ("allow", "ban"):
            # What is left may not be banned; that has a test of its own.
            best = int(np.argmax(plain.after(row, *requests)))
            request["ids"] = {"allow": [best, 0], "ban": [i for i in [0, 1, 2] if i != best]}[name]
        requests.append(request)
    assert_agrees(row, *requests)


# Chains


def test_the_order_of_a_chain_is_the_callers() -> None:
    row = np.log([0.5, 0.3, 0.15, 0.05]).tolist()
    heat, cut = {"name": "temperature", "value": 4.0}, {"name": "top_p", "p": 0.75}
    assert kept(row, cut) == [0, 1]
    # At T = 4 the masses are 0.34, 0.29, 0.24 and 0.14 instead.
    assert kept(row, heat, cut) == [0, 1, 2]
    assert kept(row, cut, heat) == [0, 1]
    assert after(row, cut, heat)[:2] == [x / 4 for x in row[:2]]
    assert survivors([row], heat, cut) == [[0, 1, 2]]
    assert survivors([row], cut, temperature=4.0) == [[0, 1]]


@pytest.mark.parametrize(
    ("first", "second", "wanted", "otherwise"),
    [
        ({"name": "top_k", "k": 2}, {"name": "top_p", "p": 0.55}, [0], [0, 1]),
        ({"name": "bias", "ids": [3], "values": [9]}, {"name": "top_k", "k": 1}, [3], [0]),
        ({"name": "ban", "ids": [0]}, {"name": "top_k", "k": 1}, [1], []),
        ({"name": "top_k", "k": 2}, {"name": "p_less"}, [0], [0, 1]),
    ],
)
def test_each_step_sees_what_the_last_one_left(
    first: dict[str, Any], second: dict[str, Any], wanted: list[int], otherwise: list[int]
) -> None:
    row = np.log([0.5, 0.3, 0.15, 0.05]).tolist()
    if second["name"] == "p_less":
        # Alone, 0.3 stays below Σp² = 0.365; of two, 0.375 stays below 0.53.
        row = np.log([0.4, 0.36, 0.12, 0.12]).tolist()
        assert kept(row, second) == [0, 1]
        assert kept(row, first, second) == [0]
        return
    assert kept(row, first, second) == wanted
    assert kept(row, second, first) == otherwise


def test_renormalizing_after_each_step_matters() -> None:
    row = np.log([0.4, 0.3, 0.2, 0.1]).tolist()
    # Of the two largest, 0.4/0.7 = 0.571 holds 0.55 alone.
    assert kept(row, {"name": "top_p", "p": 0.55}) == [0, 1]
    assert kept(row, {"name": "top_k", "k": 2}, {"name": "top_p", "p": 0.55}) == [0]


def test_an_empty_chain_and_one_that_does_nothing_change_no_bit() -> None:
    values = 4 * logits(3, 20)
    nothing = chain(
        {"name": "top_k", "k": 1000},
        {"name": "top_p", "p": 1},
        {"name": "min_p", "ratio": 0},
        {"name": "typical", "mass": 1},
        {"name": "epsilon", "cutoff": 0},
        {"name": "eta", "cutoff": 0},
        {"name": "top_n_sigma", "n": 1e6},
        {"name": "top_a", "a": 0},
        {"name": "ban", "ids": []},
        {"name": "temperature", "value": 1},
        {"name": "bias", "ids": [], "values": []},
    )
    for case in DEFAULTS:
        mapping, rows = case.mapping(20), spread(case, logits(3, 20))
        wanted = evaluate(rows, mapping).probabilities
        for processors in ([], nothing):
            found = evaluate(rows, mapping, processors=processors).probabilities
            assert found is not None
            assert wanted is not None
            assert torch.equal(found, wanted)
    assert torch.equal(applied(values, {"name": "top_p", "p": 1.0}), values)


IDEMPOTENT = [c for c in PROCESSOR_CASES if c.name in ("top_k", "allow", "ban", "min_p", "top_a")]


@pytest.mark.parametrize("case", [c for c in IDEMPOTENT if c.name != "top_a"], ids=str)
@pytest.mark.parametrize("width", [0.5, 3.0])
def test_what_depends_on_the_largest_alone_does_nothing_twice(
    case: ProcessorCase, width: float
) -> None:
    values = width * logits(4, 5, seed=3)
    values[1] = values[1].round()
    once = applied(values, case.request())
    assert torch.equal(applied(once, case.request()), once)


# Each row its own


PER_ROW: list[tuple[str, dict[str, list[Any]]]] = [
    ("temperature", {"value": [0.5, 1.0, 2.0, 8.0]}),
    ("top_k", {"k": [1, 3, 2, 50]}),
    ("top_p", {"p": [0.0, 0.9, 0.5, 1.0]}),
    ("min_p", {"ratio": [1.0, 0.0, 0.3, 0.05]}),
    ("typical", {"mass": [0.1, 1.0, 0.5, 0.9]}),
    ("epsilon", {"cutoff": [0.9, 0.0, 0.2, 0.05]}),
    ("eta", {"cutoff": [0.9, 0.0, 0.5, 0.05]}),
    ("top_n_sigma", {"n": [0.0, 9.0, 1.0, 0.5]}),
    ("top_a", {"a": [1.0, 0.0, 0.5, 0.7]}),
    ("allow", {"ids": [[0], [1, 2], [5, 4, 3, 2], [2]]}),
    ("ban", {"ids": [[0], [], [5, 4, 3, 2], [2, 2]]}),
    ("bias", {"ids": [[0], [], [5, 4], [2, 2]], "values": [[1], [], [0.5, -3], [2, 2]]}),
    ("repetition_penalty", {"penalty": [1.2, 0.5, 2.0, 1.0], "ids": [[0], [], [5, 4], [2, 2]]}),
    (
        "presence_frequency",
        {
            "presence": [1.0, 0.0, 2.0, -1.0],
            "frequency": [0.5, 1.0, 0.0, 0.25],
            "ids": [[0], [], [5, 4], [2, 2]],
            "counts": [[1], [], [0, 3], [2, 2]],
        },
    ),
]


def test_every_parameter_of_a_row_is_tried_row_by_row() -> None:
    tried = {(name, field) for name, fields in PER_ROW for field in fields}
    fields = {
        (name, field)
        for name, kind in PROCESSORS.items()
        for field in (*kind.per_row_fields(), *kind.per_row_list_fields())
    }
    assert tried == fields


@pytest.mark.parametrize(("name", "fields"), PER_ROW)
def test_each_row_has_its_own_parameters(name: str, fields: dict[str, list[Any]]) -> None:
    values = 2 * logits(4, 6, seed=2)
    found = applied(values, {"name": name, **fields}).tolist()
    for row in range(4):
        own = {field: given[row] for field, given in fields.items()}
        wanted = plain.after(values[row].tolist(), {"name": name, **own})
        assert found[row] == pytest.approx([float(x) for x in wanted], abs=1e-13)


@pytest.mark.parametrize(("name", "fields"), PER_ROW)
def test_a_list_for_another_number_of_rows_is_refused(
    name: str, fields: dict[str, list[Any]]
) -> None:
    with pytest.raises(InvalidParameter, match="is given for 4 rows of 3") as caught:
        survivors(logits(3, 6), {"name": "top_k", "k": 3}, {"name": name, **fields})
    loc = caught.value.problems[0].loc
    assert loc[:2] == ("processors", 1)
    assert loc[2] in fields


# Never empty


@each_cut
@pytest.mark.parametrize("classes", [1, 2, 1000])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16], ids=str)
def test_a_uniform_row_keeps_something(
    case: ProcessorCase, classes: int, dtype: torch.dtype
) -> None:
    for level in (0.0, -1000.0, 60_000.0):
        values = torch.full((1, classes), level, dtype=dtype)
        found = survivors(values, case.request())[0]
        wanted = plain.after([level] * classes, case.request())
        assert found == [i for i, x in enumerate(wanted) if x > MASKED] != []


STRICTEST: list[dict[str, Any]] = [
    {"name": "top_k", "k": 1},
    {"name": "top_p", "p": 0.0},
    {"name": "min_p", "ratio": 1.0},
    {"name": "typical", "mass": 1e-300},
    {"name": "epsilon", "cutoff": 1 - 2**-53},
    {"name": "eta", "cutoff": 0.999999},
    {"name": "top_n_sigma", "n": 0.0},
    {"name": "top_a", "a": 1.0},
    {"name": "p_less"},
]


@pytest.mark.parametrize("request_", STRICTEST, ids=lambda r: r["name"])
@pytest.mark.parametrize(
    "row",
    [
        [0.0],
        [MASKED, 3.0, MASKED],
        [0.0, -200.0, -1.0],
        [0.0, MASKED, -1.0],
        [1e308, -1e308, 0.0],
        [-1e308, -1e308, -1e308],
        [5e-324, 0.0, -5e-324],
        [1.0, 1.0, 1.0 - 2**-53],
        [800.0, 0.0, -800.0],
    ],
    ids=str,
)
def test_the_strictest_step_keeps_something(request_: dict[str, Any], row: list[float]) -> None:
    found = after(row, request_)
    assert any(x > MASKED for x in found)
    assert not any(math.isnan(x) for x in found)
    assert all(y in (x, MASKED) for x, y in zip(row, found, strict=True))
    whole = applied(torch.tensor([row], dtype=torch.float64), *STRICTEST)
    assert bool((whole > MASKED).any())


@pytest.mark.parametrize("request_", STRICTEST, ids=lambda r: r["name"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_a_vocabulary_of_zeros_keeps_something(
    request_: dict[str, Any], dtype: torch.dtype
) -> None:
    found = survivors(torch.zeros(1, VOCABULARY, dtype=dtype), request_)[0]
    alone = request_["name"] in ("top_k", "top_p", "typical", "epsilon")
    assert found == ([0] if alone else list(range(VOCABULARY)))


# Masks


@each_first
def test_a_masked_class_stays_masked_wherever_it_stands(case: ProcessorCase) -> None:
    classes = 6
    values = 2 * logits(1, classes, seed=7)[0]
    for first in range(classes):
        for second in range(first, classes):
            row = values.clone()
            row[[first, second]] = MASKED
            if case.name == "allow" and not bool((row[case.parameters["ids"]] > MASKED).any()):
                continue
            found = after(row.tolist(), case.request())
            assert found[first] == MASKED == found[second]
            wanted = plain.after(row.tolist(), case.request())
            assert found == pytest.approx([float(x) for x in wanted], abs=1e-13)


@each_cut
@pytest.mark.parametrize("classes", [3, 130, 5000])
def test_padding_a_row_with_masked_classes_changes_nothing(
    case: ProcessorCase, classes: int
) -> None:
    values = 3 * logits(2, classes)
    wide = torch.full((2, classes + 700), MASKED, dtype=values.dtype)
    wide[:, :classes] = values
    alone = applied(values, case.request())
    found = applied(wide, case.request())
    assert torch.equal(found[:, :classes], alone)
    assert bool((found[:, classes:] == MASKED).all())


# Batches, types and the caller's memory


@each_case
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("classes", [5, 5000])
def test_a_row_has_the_same_outcome_in_any_batch(
    case: ProcessorCase, dtype: torch.dtype, classes: int
) -> None:
    values = (3 * logits(9, classes, seed=9)).to(dtype)
    values[1] = values[1].round()
    values[2] = 0.5
    values[5, 3:] = MASKED
    values[6] *= 300
    mates = [step(c.request()) for c in PROCESSOR_CASES if c.name == case.name]
    own = step(case.request())
    mates = [own, *(mate for mate in mates if mate.batch_key() == own.batch_key())]
    parts = [mates[row % len(mates)] for row in range(9)]
    batch = joined([(part, 1) for part in parts])
    assert isinstance(batch, Processor)
    together = batch.apply(values, batch.bind(9, values.device))
    for row in range(9):
        one = values[row : row + 1]
        alone = parts[row].apply(one, parts[row].bind(1, values.device))
        assert torch.equal(together[row], alone[0])


@each_case
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16], ids=str)
@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_the_input_is_not_written_to(case: ProcessorCase, dtype: torch.dtype) -> None:
    values = (3 * logits(3, 5)).to(dtype)
    values[1] = 0.5
    owned = values.numpy().copy()
    owned.flags.writeable = False
    before = owned.tobytes()
    survivors(torch.from_numpy(owned), case.request())
    assert owned.tobytes() == before


@each_first
def test_strides_do_not_matter(case: ProcessorCase) -> None:
    values = 3 * logits(4, 5)
    padded = torch.full((4, 64), 1e9, dtype=torch.float64)
    padded[:, :5] = values
    wanted = survivors(values, case.request())
    for view in (values.T.contiguous().T, padded[:, :5], values.flip(0).flip(0)):
        assert survivors(view, case.request()) == wanted


# Ties


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("classes", [5, 300, 50_000])
@pytest.mark.parametrize("k", [1, 2, 50, 300])
def test_ties_of_top_k_go_to_the_lower_class(dtype: torch.dtype, classes: int, k: int) -> None:
    values = (2 * logits(2, classes, seed=4)).round().to(dtype)
    first = survivors(values, {"name": "top_k", "k": k})
    every = survivors(values, {"name": "top_k", "k": k, "ties": "all"})
    for row in range(2):
        given_row = values[row].double().numpy()
        order = np.argsort(-given_row, kind="stable")
        assert first[row] == sorted(order[:k].tolist())
        assert every[row] == np.flatnonzero(given_row >= given_row[order[:k][-1]]).tolist()


@pytest.mark.parametrize("classes", [4, 1000, 20_000])
@pytest.mark.parametrize("p", [0.0, 0.25, 0.5, 0.9])
def test_ties_of_top_p_go_to_the_lower_class(classes: int, p: float) -> None:
    values = torch.zeros(1, classes)
    count = max(1, math.ceil(round(p * classes, 6)))
    assert survivors(values, {"name": "top_p", "p": p})[0] == list(range(count))
    every = survivors(values, {"name": "top_p", "p": p, "ties": "all"})[0]
    assert every == list(range(classes))


# Large vocabularies


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_a_tiny_nucleus_keeps_the_first_of_the_largest(dtype: torch.dtype) -> None:
    values = logits(4, 1000, seed=2).to(dtype)
    for row, kept_ids in enumerate(survivors(values, {"name": "top_p", "p": 1e-4})):
        assert kept_ids == [int((values[row] == values[row].max()).nonzero()[0])]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("width", [0.0, 1.0, 20.0, 300.0])
@pytest.mark.parametrize("ties", ["first", "all"])
def test_top_p_near_one_neither_loses_a_class_nor_ends_past_the_last(
    dtype: torch.dtype, width: float, ties: str
) -> None:
    values = (width * logits(1, VOCABULARY)).to(dtype)
    every = applied(values.float(), {"name": "top_p", "p": 1.0, "ties": ties})
    assert torch.equal(every, values.float())
    most = applied(values.float(), {"name": "top_p", "p": 0.9999999, "ties": ties})[0]
    masses = torch.softmax(values.double()[0], -1)
    left_out = float(masses[most == MASKED].sum())
    assert left_out <= 1e-7 * (1 + 2e-6)
    if width == 0.0 and ties == "first":
        # A tail of 1e-7 is worth less than one of these classes.
        assert int((most > MASKED).sum()) == VOCABULARY
    smallest = masses[most > MASKED].min()
    if ties == "first" and left_out > 0:
        assert left_out + float(smallest) > 1e-7 * (1 - 1e-9)


@pytest.mark.parametrize("name", ["top_p", "typical"])
@pytest.mark.parametrize("width", [5.0, 20.0])
def test_a_small_nucleus_sorts_no_vocabulary(
    name: str, width: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[int] = []

    def watched(owner: Any, attribute: str) -> None:
        original = getattr(owner, attribute)

        def call(values: Tensor, *args: Any, **named: Any) -> Any:
            if attribute == "topk":
                count = named.get("k", args[0] if args else 0)
                looked_at.append(int(count))
            else:
                looked_at.append(values.shape[-1])
            return original(values, *args, **named)

        monkeypatch.setattr(owner, attribute, call)

    for attribute in ("sort", "argsort", "msort", "topk", "kthvalue"):
        watched(torch.Tensor, attribute)
        watched(torch, attribute)
    values = width * torch.from_numpy(np.random.default_rng(1).standard_normal((2, 151_936)))
    request = {"name": name, "p" if name == "top_p" else "mass": 0.9}
    found = applied(values, request)
    size = int((found > MASKED).sum(-1).max())
    assert 0 < size < 10_000
    assert max(looked_at, default=0) <= 8 * size + 4096


@pytest.mark.parametrize("width", [1.0, 3.0])
@pytest.mark.parametrize("p", [0.5, 0.9, 0.999])
def test_a_large_nucleus_is_right_too(width: float, p: float) -> None:
    row = width * np.random.default_rng(2).standard_normal(40_000)
    for name, field in (("top_p", "p"), ("typical", "mass")):
        request = {"name": name, field: p}
        wanted = [i for i, x in enumerate(plain.after(row.tolist(), request)) if x > MASKED]
        assert kept(row.tolist(), request) == wanted
        assert len(wanted) > 50


# What is refused


@pytest.mark.parametrize(
    "request_",
    [
        {"name": "allow", "ids": [0, 5]},
        {"name": "ban", "ids": [5]},
        {"name": "ban", "ids": [[0], [5]]},
        {"name": "bias", "ids": [1, 5], "values": [1, 1]},
        {"name": "repetition_penalty", "penalty": 1.5, "ids": [5]},
        {"name": "presence_frequency", "presence": 1, "ids": [5], "counts": [0]},
    ],
    ids=lambda r: r["name"],
)
def test_an_id_past_the_classes_is_named(request_: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter, match=r"class id 5 .* 5 classes") as caught:
        survivors(logits(2, 5), {"name": "top_k", "k": 3}, request_)
    assert caught.value.problems[0].loc == ("processors", 1, "ids")


def test_an_id_past_a_shorter_row_is_named() -> None:
    values = logits(2, 5)
    values[1, 3:] = MASKED
    with pytest.raises(InvalidParameter, match="class id 4 is not below the 3 classes of row 1"):
        evaluate(
            values, built("softmax"), processors=chain({"name": "ban", "ids": [4]}), lengths=[5, 3]
        )


@pytest.mark.parametrize(
    "request_",
    [
        {"name": "ban", "ids": [0, 1, 2]},
        {"name": "allow", "ids": []},
        {"name": "ban", "ids": [[], [0, 1, 2]]},
        {"name": "allow", "ids": [[0, 1, 2], []]},
    ],
    ids=str,
)
def test_a_chain_that_leaves_nothing_names_its_step(request_: dict[str, Any]) -> None:
    values = logits(2, 3)
    last = chain({"name": "top_k", "k": 3}, request_)
    with pytest.raises(InvalidRow, match=f"no unmasked class after {request_['name']}") as caught:
        evaluate(values, built("softmax"), processors=last)
    bad = list(caught.value.reasons)
    found = evaluate(values, built("softmax"), processors=last, invalid_rows="report")
    assert [row for row, status in enumerate(found.status) if status != "ok"] == bad
    assert found.probabilities is not None
    for row in range(2):
        assert bool(found.probabilities[row].isnan().all()) == (row in bad)


def test_a_step_that_overflows_is_named() -> None:
    values = torch.tensor([[1e308, 0.0]], dtype=torch.float64)
    for request in (
        {"name": "temperature", "value": 0.01},
        {"name": "bias", "ids": [0], "values": [1.7e308]},
    ):
        with pytest.raises(InvalidRow, match=f"inf at class 0 after {request['name']}"):
            evaluate(values, built("softmax"), processors=chain(request))


NOT_NUMBERS: list[Any] = [math.nan, math.inf, -math.inf, "1", True, None, {}]


@pytest.mark.parametrize("case", FIRST, ids=str)
@pytest.mark.parametrize("value", NOT_NUMBERS, ids=repr)
def test_what_is_not_a_number_is_refused(case: ProcessorCase, value: Any) -> None:
    kind = PROCESSORS[case.name]
    for field in kind.per_row_fields():
        for tried in (value, [1, value]):
            with pytest.raises(ValidationError):
                step({**case.request(), field: tried})
    for field in kind.per_row_list_fields():
        for tried in (value, [value], [[0], [value]]):
            with pytest.raises(ValidationError):
                step({**case.request(), field: tried})


@pytest.mark.parametrize(
    "request_",
    [
        {"name": "temperature", "value": 0},
        {"name": "temperature", "value": -1},
        {"name": "top_k", "k": 0},
        {"name": "top_k", "k": -1},
        {"name": "top_k", "k": 2.5},
        {"name": "top_k", "k": 2, "ties": "last"},
        {"name": "top_p", "p": -0.1},
        {"name": "top_p", "p": 1.1},
        {"name": "min_p", "ratio": 1.5},
        {"name": "typical", "mass": 0},
        {"name": "typical", "mass": 1.5},
        {"name": "epsilon", "cutoff": 1},
        {"name": "eta", "cutoff": 1},
        {"name": "top_n_sigma", "n": -1},
        {"name": "top_a", "a": 1.1},
        {"name": "ban", "ids": [-1]},
        {"name": "allow", "ids": [1.0]},
        {"name": "bias", "ids": [1, 2], "values": [1]},
        {"name": "bias", "ids": [[1], [2]], "values": [[1], []]},
        {"name": "repetition_penalty", "penalty": 0, "ids": [1]},
        {"name": "presence_frequency", "ids": [1], "counts": [-1]},
        {"name": "presence_frequency", "ids": [1], "counts": [1, 1]},
        {"name": "top_k"},
        {"name": "p_less", "p": 1},
    ],
    ids=str,
)
def test_a_parameter_past_its_bound_is_refused(request_: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        step(request_)


# Before every mapping


CUTS: list[dict[str, Any]] = [
    {"name": "top_k", "k": 4},
    {"name": "top_p", "p": 0.8},
    {"name": "min_p", "ratio": 0.3},
    {"name": "ban", "ids": [1]},
]


@pytest.mark.parametrize("case", DEFAULTS, ids=str)
@pytest.mark.parametrize("request_", CUTS, ids=lambda r: r["name"])
def test_a_mapping_sees_a_cut_class_as_a_masked_one(case: Case, request_: dict[str, Any]) -> None:
    values = spread(case, logits(3, 8, seed=5))
    values[:, 0] = values.max()
    request = case.request(8)
    if "weights" in request:
        request["weights"] = [0.5 + weight for weight in request["weights"]]
    cut = applied(values, request_)
    assert bool((cut == MASKED).any())
    wanted = evaluate(cut, built(request)).probabilities
    found = evaluate(values, built(request), processors=chain(request_)).probabilities
    assert found is not None
    assert wanted is not None
    assert torch.equal(found, wanted)
    assert not bool(found[cut == MASKED].any())
