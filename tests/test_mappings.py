"""What must hold of every registered mapping, over the table of cases."""

import math
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import reference
from answers import answer, bits, listed, present, probabilities, supported
from cases import CASES, DEFAULTS, NAMES, Case, built, logits, spread
from mappings import boltzmann
from mappings.base import Mapping
from mappings.parameters import joined
from mappings.registry import MAPPINGS

VOCABULARY = 151_936
SMALLEST_NORMAL = 2.3e-308


INEXACT = {"perturb_max": 1e-10}
"""Mappings that are integrated numerically, with their absolute error."""

each_case = pytest.mark.parametrize("case", CASES, ids=str)
each_default = pytest.mark.parametrize("case", DEFAULTS, ids=str)

SLOW_NOISES = ("normal", "logistic", "exponential")
"""Noises whose reference takes minutes for more than 2 classes; test_perturb_max.py has those."""

KNOWN = [case for case in CASES if case.name != "gumbel_softmax"]
QUICK = [
    case
    for case in KNOWN
    if case.name != "perturb_max" or case.parameters.get("noise", "normal") not in SLOW_NOISES
]
EVEN_HANDED = [
    case
    for case in CASES
    if not {"weights", "target", "seed"} & set(case.parameters)
    and not (case.name == "sparse_softmax" and {"k", "p"} & set(case.parameters))
]
"""What tells equal logits apart by nothing."""

FULL = [
    case
    for case in CASES
    if not MAPPINGS[case.name].sparse
    and case.parameters.get("temperature") not in (0, 1e-30)
    and not case.parameters.get("hard")
]
"""What gives every class something; a limit may leave nothing but the maxima."""

each_known = pytest.mark.parametrize("case", KNOWN, ids=str)
each_quick = pytest.mark.parametrize("case", QUICK, ids=str)


def rows_of(case: Case, rows: int, classes: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return spread(case, logits(rows, classes)).to(dtype)


def claims(case: Case) -> type[Mapping]:
    return MAPPINGS[case.name]


def error(case: Case, otherwise: float) -> float:
    return INEXACT.get(case.name, otherwise)


def largest_difference(first: Tensor, second: Tensor) -> float:
    return float((first - second).abs().max()) if first.numel() else 0.0


# The table


def test_every_registered_mapping_has_cases_and_every_case_a_mapping() -> None:
    assert set(MAPPINGS) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_choice_of_a_static_field_has_a_case(name: str) -> None:
    for field in MAPPINGS[name].static_fields():
        choices = set(get_args(MAPPINGS[name].model_fields[field].annotation))
        tried = {getattr(case.mapping(3), field) for case in CASES if case.name == name}
        assert choices <= tried


# Sums


@each_case
@pytest.mark.parametrize("classes", [1, 2, 3, 1000])
def test_rows_sum_to_one(case: Case, classes: int) -> None:
    values = rows_of(case, 3, classes)
    exact = probabilities(values, case.mapping(classes))
    assert largest_difference(exact.sum(-1), torch.ones(3)) <= error(case, 1e-12)
    narrow = probabilities(values.float(), case.mapping(classes))
    assert narrow.dtype == torch.float32
    assert largest_difference(narrow.double().sum(-1), torch.ones(3)) <= 2e-6
    assert bool((narrow >= 0).all())


VOCABULARIES = [
    pytest.param(case, dtype, id=f"{case.name}-{dtype}")
    for case in DEFAULTS
    for dtype in (torch.float32, torch.float16, torch.bfloat16)
    # Seconds long, and the same as float32 once widened.
    if case.name != "perturb_max" or dtype == torch.float32
]


@pytest.mark.parametrize(("case", "dtype"), VOCABULARIES)
def test_a_vocabulary_sums_to_one(case: Case, dtype: torch.dtype) -> None:
    values = rows_of(case, 1, VOCABULARY, dtype)
    found = probabilities(values, case.mapping(VOCABULARY))
    assert found.dtype == torch.float32
    assert abs(float(found.double().sum()) - 1) <= 2e-6


# The reference


def assert_agrees(case: Case, row: list[float], classes: int) -> None:
    exact = reference.distribution(case.request(classes), row)
    found = answer([row], case.mapping(classes))
    bound = error(case, 1e-12)
    wanted = torch.tensor([exact.doubles()], dtype=torch.float64)
    assert largest_difference(present(found.probabilities), wanted) <= bound
    assert abs(float(present(found.entropy)) - float(exact.entropy())) <= 10 * bound
    logs = present(found.log_probabilities)[0].tolist()
    for got, p, log in zip(logs, exact.probabilities, exact.log_probabilities, strict=True):
        if case.name in INEXACT and p < 1e-6:
            continue
        if log == reference.MASKED:
            assert got == -math.inf
        else:
            assert abs(got - float(log)) <= 1e-10 * float(abs(log)) + slack(case, float(p))


def slack(case: Case, p: float) -> float:
    """How far log p may be off where p comes out of a difference with a rounded threshold."""
    if case.name in INEXACT:
        return INEXACT[case.name] / p
    return 2e-15 / p if claims(case).sparse and p > 1e-200 else 1e-15


@each_known
@pytest.mark.parametrize("classes", [1, 2])
def test_short_rows_agree_with_the_reference(case: Case, classes: int) -> None:
    assert_agrees(case, rows_of(case, 1, classes)[0].tolist(), classes)


@each_quick
@pytest.mark.parametrize("classes", [5, 16])
def test_random_rows_agree_with_the_reference(case: Case, classes: int) -> None:
    assert_agrees(case, rows_of(case, 1, classes)[0].tolist(), classes)


@each_quick
def test_rows_with_ties_and_masks_agree_with_the_reference(case: Case) -> None:
    row = [0.5, -0.25, -math.inf, 0.5, 0.0, -0.25, -math.inf, 0.5]
    assert_agrees(case, row, len(row))


@each_quick
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_narrow_rows_agree_with_the_reference_at_their_values(
    case: Case, dtype: torch.dtype
) -> None:
    values = rows_of(case, 1, 5, dtype)
    exact = reference.distribution(case.request(5), values[0].tolist())
    found = probabilities(values, case.mapping(5))[0].tolist()
    for got, wanted in zip(found, exact.doubles(), strict=True):
        assert abs(got - wanted) <= 1e-6 * wanted + 1e-9


@given(
    st.sampled_from([case for case in QUICK if case.name != "perturb_max"]),
    st.lists(
        st.one_of(
            st.sampled_from([-1.0, -0.5, 0.0, 0.25, 1.0, -math.inf]),
            st.floats(-1, 1, allow_subnormal=False),
        ),
        min_size=1,
        max_size=9,
    ),
    st.sampled_from([1.0, 8.0, 60.0]),
)
def test_any_row_agrees_with_the_reference(case: Case, row: list[float], width: float) -> None:
    scale = 1.0 if case.name == "margin_softmax" else width
    row = [0.75 * scale, *(value * scale for value in row)]
    exact = reference.distribution(case.request(len(row)), row)
    found = probabilities([row], case.mapping(len(row)))[0].tolist()
    for got, wanted in zip(found, exact.doubles(), strict=True):
        assert abs(got - wanted) <= 1e-12


def test_rows_of_one_request_have_each_their_own_alpha() -> None:
    alphas = [1.0, 1.5, 2.0, 0.5, 4.0, 1.0 + 1e-7]
    values = 3 * logits(len(alphas), 6, seed=1)
    found = answer(values, built({"name": "entmax", "alpha": alphas}))
    for index, alpha in enumerate(alphas):
        exact = reference.distribution({"name": "entmax", "alpha": alpha}, values[index].tolist())
        got = present(found.probabilities)[index].tolist()
        assert got == pytest.approx(exact.doubles(), abs=1e-12, rel=0)


# Masks


@each_case
def test_a_masked_class_gets_zero_wherever_it_stands(case: Case) -> None:
    classes = 6
    values = rows_of(case, 1, classes)[0]
    for first in range(classes):
        for second in range(first, classes):
            row = values.clone()
            row[[first, second]] = -math.inf
            found = answer(row.unsqueeze(0), case.mapping(classes))
            got = present(found.probabilities)[0]
            assert float(got[first]) == 0.0 == float(got[second])
            assert float(present(found.log_probabilities)[0, first]) == -math.inf
            assert not {first, second} & set(listed(supported(found), 0))
            assert abs(float(got.sum()) - 1) <= error(case, 1e-12)


def without(request: dict[str, Any], position: int) -> dict[str, Any]:
    """The mapping of a row that lost the class at a position."""
    changed = dict(request)
    if "weights" in changed:
        changed["weights"] = changed["weights"][:position] + changed["weights"][position + 1 :]
    if "target" in changed:
        changed["target"] -= changed["target"] > position
    return changed


@each_case
def test_masking_a_class_is_dropping_it(case: Case) -> None:
    classes = 6
    values = rows_of(case, 1, classes)[0]
    request = case.request(classes)
    # Gumbel noise belongs to the class id, so only the last class can be dropped.
    positions = [classes - 1] if case.name == "gumbel_softmax" else range(classes)
    for position in positions:
        if request.get("target") == position:
            continue
        kept = [index for index in range(classes) if index != position]
        masked = values.clone()
        masked[position] = -math.inf
        got = probabilities(masked.unsqueeze(0), built(request))[:, kept]
        wanted = probabilities(values[kept].unsqueeze(0), built(without(request, position)))
        assert largest_difference(got, wanted) <= error(case, 1e-14)


@each_case
@pytest.mark.parametrize("classes", [3, 130, 1000])
def test_padding_a_row_with_masked_classes_changes_no_bit(case: Case, classes: int) -> None:
    values = rows_of(case, 2, classes)
    request = case.request(classes)
    wide = torch.full((2, classes + 700), -math.inf, dtype=values.dtype)
    wide[:, :classes] = values
    if "weights" in request:
        padded = request["weights"] + [0.0] * 700
        found = answer(wide, built({**request, "weights": padded}))
    else:
        found = answer(wide, built(request), lengths=[classes, classes])
    alone = answer(values, built(request))
    for row in range(2):
        assert bits(found, row, classes) == bits(alone, row)
    assert bool((present(found.probabilities)[:, classes:] == 0).all())


# Order, shifts, permutations


@each_known
def test_permuting_classes_permutes_probabilities(case: Case) -> None:
    # Gumbel noise is left out: it belongs to the class id.
    classes = 9
    values = rows_of(case, 4, classes)
    order = np.random.default_rng(5).permutation(classes).tolist()
    request = case.request(classes)
    moved = dict(request)
    if "weights" in moved:
        moved["weights"] = [moved["weights"][index] for index in order]
    if "target" in moved:
        moved["target"] = order.index(moved["target"])
    got = probabilities(values[:, order], built(moved))
    wanted = probabilities(values, built(request))[:, order]
    assert largest_difference(got, wanted) <= error(case, 1e-14)


@pytest.mark.parametrize("case", [c for c in CASES if claims(c).monotone], ids=str)
@pytest.mark.parametrize("classes", [3, 1000])
def test_a_larger_logit_never_has_a_smaller_probability(case: Case, classes: int) -> None:
    values = rows_of(case, 2, classes).sort(dim=-1).values
    assert float(probabilities(values, case.mapping(classes)).diff().min()) >= -1e-16


@pytest.mark.parametrize("case", EVEN_HANDED, ids=str)
def test_equal_logits_have_equal_probabilities_to_the_bit(case: Case) -> None:
    for classes in (7, 300):
        values = (rows_of(case, 2, classes) * 2).round() / 2
        values[:, 0] = 0.5
        found = probabilities(values, case.mapping(classes))
        for row in range(2):
            for level in set(values[row].tolist()):
                assert len(set(found[row][values[row] == level].tolist())) == 1


@pytest.mark.parametrize("case", [c for c in CASES if claims(c).shift_invariant], ids=str)
@pytest.mark.parametrize("shift", [2.0**20, -(2.0**20), 1e6])
def test_adding_a_constant_changes_nothing(case: Case, shift: float) -> None:
    # Multiples of 2^-20 can be shifted that far without rounding.
    values = (rows_of(case, 3, 8) * 2**20).round() / 2**20
    shifted = probabilities(values + shift, case.mapping(8))
    tolerance = 1e-8 if case.name == "gumbel_softmax" else error(case, 1e-12)
    assert largest_difference(shifted, probabilities(values, case.mapping(8))) <= tolerance


@pytest.mark.parametrize("case", FULL, ids=str)
def test_a_full_support_holds_every_unmasked_class(case: Case) -> None:
    values = rows_of(case, 3, 12)
    assert bool((probabilities(values, case.mapping(12)) > 0).all())


# Limits of parameters


@pytest.mark.parametrize("case", [c for c in CASES if c.equals is not None], ids=str)
@pytest.mark.parametrize("classes", [1, 2, 7, 1000])
def test_a_limit_is_reached(case: Case, classes: int) -> None:
    values = rows_of(case, 3, classes)
    if case.equals == "maxima" and classes > 2:
        values[1, -1] = values[1].max()
    if classes > 2:
        values[2, 1] = -math.inf
    got = probabilities(values, case.mapping(classes))
    if case.equals == "uniform":
        unmasked = values > -math.inf
        wanted = unmasked / unmasked.sum(-1, keepdim=True).double()
    elif case.equals == "maxima":
        maxima = values == values.amax(-1, keepdim=True)
        wanted = maxima / maxima.sum(-1, keepdim=True).double()
    else:
        assert isinstance(case.equals, dict)
        wanted = probabilities(values, built(case.equals))
    assert largest_difference(got, wanted) <= case.within


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("entmax", {"alpha": [16.0, 8.0, 4.0, 2.0, 1.5, 1.0, 0.5, 0.1]}),
        ("sparsegen", {"lam": [0.99, 0.5, 0.0, -1.0, -50.0]}),
        ("t_softmax", {"t": [0.01, 0.5, 3.0, 100.0]}),
        ("r_softmax", {"r": [0.95, 0.7, 0.5, 0.2, 0.0]}),
        ("softmax", {"temperature": [0.0, 0.1, 1.0, 5.0, 1e9]}),
    ],
)
def test_the_entropy_rises_along_the_parameter(name: str, fields: dict[str, list[float]]) -> None:
    count = len(next(iter(fields.values())))
    values = (2 * logits(1, 30, seed=3)).expand(count, -1)
    entropy = present(answer(values, built({"name": name, **fields})).entropy)
    assert bool((entropy.diff() >= 0).all())


@pytest.mark.parametrize("classes", [2, 10, 64, 1000])
def test_r_softmax_with_r_of_k_over_n_has_k_zeros(classes: int) -> None:
    for zeros in {0, 1, classes // 2, classes - 1}:
        found = probabilities(
            logits(2, classes), built({"name": "r_softmax", "r": zeros / classes})
        )
        # r = 0 still zeroes the smallest.
        assert (found == 0).sum(-1).tolist() == [max(zeros, 1)] * 2


@pytest.mark.parametrize("k", [1, 2, 7, 999, 1000, 5000])
def test_top_k_keeps_k_classes(k: int) -> None:
    found = probabilities(logits(2, 1000), built({"name": "sparse_softmax", "k": k}))
    assert (found > 0).sum(-1).tolist() == [min(k, 1000)] * 2


# Batches


def neighbours(case: Case, classes: int, dtype: torch.dtype) -> list[tuple[Mapping, Tensor]]:
    """18 rows that could share a batch with a case's: flat, peaked, masked, other parameters."""
    mapping = case.mapping(classes)
    mates = [c.mapping(classes) for c in CASES if c.name == case.name]
    mates = [mate for mate in mates if mate.batch_key() == mapping.batch_key()]
    values = rows_of(case, 18, classes, dtype)
    top = 1.0 if case.name == "margin_softmax" else 800.0
    values[2] = 0.5
    values[5] = -top
    values[5, classes // 2] = top
    values[7, 1:] = -math.inf
    values[11, : classes // 2] = -math.inf
    values[11, 0] = 0.25
    return [(mates[i % len(mates)], values[i : i + 1]) for i in range(18)]


BATCHED = [
    pytest.param(case, classes, id=f"{case}-{classes}")
    for case in CASES
    for classes in (3, 130, 1000)
    # Integrals for 19 long rows take seconds: one case of them is enough.
    if case.name != "perturb_max" or classes < 1000 or case in DEFAULTS
]


@pytest.mark.parametrize(("case", "classes"), BATCHED)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_a_row_has_the_same_bits_in_any_batch(case: Case, dtype: torch.dtype, classes: int) -> None:
    row = spread(case, logits(1, classes, seed=9)).to(dtype)
    mapping = case.mapping(classes)
    alone = bits(answer(row, mapping), 0)
    others = neighbours(case, classes, dtype)
    for place in (0, 9, 18):
        parts = [*others[:place], (mapping, row), *others[place:]]
        batch = joined([(part, values.shape[0]) for part, values in parts])
        assert isinstance(batch, Mapping)
        found = answer(torch.cat([values for _, values in parts]), batch)
        assert bits(found, place) == alone
        assert bits(found, 18 - place) == bits(
            answer(parts[18 - place][1], parts[18 - place][0]), 0
        )


@each_default
def test_a_long_row_has_the_same_bits_however_the_batch_is_cut(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    classes = 9_000 if case.name == "perturb_max" else 40_000
    values = rows_of(case, 4, classes, torch.float32)
    mapping = case.mapping(classes)
    alone = [bits(answer(values[row : row + 1], mapping), 0) for row in range(4)]
    for elements in (classes, 3 * classes, 1 << 30):
        monkeypatch.setattr(type(mapping), "elements_at_once", elements)
        monkeypatch.setattr(type(mapping), "masses_at_once", elements)
        monkeypatch.setattr(boltzmann, "AT_ONCE", elements)
        together = answer(values, mapping)
        assert [bits(together, row) for row in range(4)] == alone


# The caller's memory


@each_default
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("classes", [1, 5, 1000])
@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_the_input_is_not_written_to(case: Case, dtype: torch.dtype, classes: int) -> None:
    values = rows_of(case, 3, classes, dtype)
    values[0, 1:] = -math.inf
    values[1, 0] = math.nan
    owned = values.numpy().copy()
    owned.flags.writeable = False
    before = owned.tobytes()
    answer(torch.from_numpy(owned), case.mapping(classes), invalid_rows="report")
    assert owned.tobytes() == before


@each_default
def test_strides_do_not_matter(case: Case) -> None:
    values = rows_of(case, 4, 33, torch.float32)
    padded = torch.full((4, 64), 1e9)
    padded[:, :33] = values
    every_other = torch.full((8, 66), 1e9)
    every_other[::2, ::2] = values
    mapping = case.mapping(33)
    wanted = answer(values, mapping)
    transposed = values.T.contiguous().T
    for view in (transposed, padded[:, :33], every_other[::2, ::2], values.flip(0).flip(0)):
        found = answer(view, mapping)
        assert all(bits(found, row) == bits(wanted, row) for row in range(4))


@each_default
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_sixteen_bit_logits_are_computed_as_the_float32_they_are(
    case: Case, dtype: torch.dtype
) -> None:
    values = rows_of(case, 2, 1000, dtype)
    found, wanted = (
        answer(values, case.mapping(1000)),
        answer(values.float(), case.mapping(1000)),
    )
    assert all(bits(found, row) == bits(wanted, row) for row in range(2))


@each_default
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8], ids=str)
def test_integer_logits_are_floats(case: Case, dtype: torch.dtype) -> None:
    values = torch.tensor([[1, 0, 1], [0, 1, 0]], dtype=dtype)
    found = answer(values, case.mapping(3))
    wanted = answer(values.double(), case.mapping(3))
    assert present(found.probabilities).dtype == torch.float64
    assert all(bits(found, row) == bits(wanted, row) for row in range(2))


@each_default
def test_a_flat_row_of_logits_is_one_row(case: Case) -> None:
    values = rows_of(case, 1, 5)
    assert bits(answer(values[0], case.mapping(5)), 0) == bits(answer(values, case.mapping(5)), 0)


@each_default
def test_an_empty_batch_has_an_empty_answer(case: Case) -> None:
    found = answer(torch.empty(0, 5), case.mapping(5))
    assert found.status == []
    assert present(found.probabilities).shape == (0, 5)
    assert present(found.entropy).shape == (0,)
    assert supported(found).offsets.tolist() == [0]


# Outputs


@each_case
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_the_outputs_agree_with_each_other(case: Case, dtype: torch.dtype) -> None:
    values = rows_of(case, 5, 40)
    values[1] = (values[1] * 2).round() / 2
    values[2, 3:9] = -math.inf
    found = answer(values, case.mapping(40), dtype=dtype)
    dense, logs = present(found.probabilities), present(found.log_probabilities)
    assert dense.dtype == logs.dtype == present(found.entropy).dtype == dtype
    rounding = torch.finfo(dtype).eps
    support = supported(found)
    assert support.offsets[-1] == support.indices.numel()
    for row in range(5):
        p, one = dense[row], support.rows(row, row + 1)
        inside = [index for index in range(40) if p[index] > 0]
        order = sorted(inside, key=lambda index: (-float(p[index]), index))
        assert one.indices.tolist() == order
        assert torch.equal(one.probabilities, p[order])
        assert torch.equal(one.log_probabilities, logs[row][order])
        assert int(present(found.support_size)[row]) == len(order) == int(one.sizes)
        assert not bool(one.truncated)
        normal = p > SMALLEST_NORMAL if dtype == torch.float64 else p > 1.2e-38
        gap = (p[normal].double().log() - logs[row][normal].double()).abs()
        bounds = 4 * rounding * (1 + logs[row][normal].abs().double())
        bounds += torch.tensor([slack(case, float(value)) for value in p[normal]])
        assert bool((gap <= bounds).all())
        entropy = -torch.special.xlogy(p.double(), p.double()).sum()
        assert abs(float(entropy) - float(present(found.entropy)[row])) <= 100 * rounding


@each_default
@pytest.mark.parametrize("limit", [1, 3, 40, 1000])
def test_a_limited_support_lists_the_most_probable(case: Case, limit: int) -> None:
    values = rows_of(case, 3, 40)
    values[1] = (values[1] * 2).round() / 2
    whole = supported(answer(values, case.mapping(40)))
    cut = supported(answer(values, case.mapping(40), support_limit=limit))
    for row in range(3):
        every, some = whole.rows(row, row + 1), cut.rows(row, row + 1)
        assert some.indices.tolist() == every.indices.tolist()[:limit]
        assert torch.equal(some.probabilities, every.probabilities[:limit])
        assert int(some.sizes) == int(every.sizes)
        assert bool(some.truncated) == (int(every.sizes) > limit)
        assert float(some.mass) == pytest.approx(float(some.probabilities.sum()), abs=1e-14)


@each_default
@pytest.mark.parametrize("bad", [[math.nan, 0.5, 0.1], [0.1, math.inf, 0.0], [-math.inf] * 3])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_bad_row_is_reported_and_leaves_the_others_alone(
    case: Case, bad: list[float], place: int
) -> None:
    good = rows_of(case, 2, 3)
    values = torch.cat([good[:place], torch.tensor([bad], dtype=torch.float64), good[place:]])
    found = answer(values, case.mapping(3), invalid_rows="report")
    wanted = answer(good, case.mapping(3))
    others = [row for row in range(3) if row != place]
    assert [found.status[row] for row in others] == ["ok", "ok"]
    assert found.status[place] in ("nan at class 0", "+inf at class 1", "no unmasked class")
    assert all(bits(found, row) == bits(wanted, i) for i, row in enumerate(others))
    assert bool(present(found.probabilities)[place].isnan().all())
    assert bool(present(found.log_probabilities)[place].isnan().all())
    assert math.isnan(float(present(found.entropy)[place]))
    assert math.isnan(float(present(found.normalizer)[place]))
    assert int(present(found.support_size)[place]) == 0
    assert listed(supported(found), place) == []
