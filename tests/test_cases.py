"""Faults that comparable libraries shipped, each as the whole kind."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from scipy import stats

import reference
from answers import answer, listed, present, probabilities, supported
from cases import CASES, DEFAULTS, NAMES, Case, built, logits
from mappings.errors import InvalidParameter, InvalidRow, UnknownName
from mappings.philox import gumbel
from mappings.registry import MAPPINGS

WIDE = [case for case in DEFAULTS if case.name != "margin_softmax"]
"""Mappings whose logits are not cosines."""

PEAKED = [
    case
    for case in CASES
    if MAPPINGS[case.name].shift_invariant
    and case.equals != "uniform"
    and case.name not in ("weighted_softmax", "gumbel_softmax")
]
"""What gives all mass to a class far above the others, whatever its logit."""
FREEZING = [
    case
    for case in DEFAULTS
    if MAPPINGS[case.name].shift_invariant and case.name != "gumbel_softmax"
]
each_default = pytest.mark.parametrize("case", DEFAULTS, ids=str)
each_name = pytest.mark.parametrize("name", NAMES)


def at(case: Case, classes: int, **changed: Any) -> Any:
    return built({**case.request(classes), **changed})


# Small supports, and alpha about 1


@pytest.mark.parametrize("shift", [0.0, -7.0, 1e6])
def test_sparsemax_finds_a_support_of_two(shift: float) -> None:
    row = [shift, shift + 0.5, shift + 1]
    assert probabilities([row], built("sparsemax")).tolist() == [[0, 0.25, 0.75]]


@pytest.mark.parametrize("size", range(1, 7))
def test_sparsemax_finds_a_support_of_any_size(size: int) -> None:
    # The support's probabilities plus any threshold project back onto themselves.
    wanted = [2 * (i + 1) / (size * (size + 1)) for i in range(size)] + [0.0] * (6 - size)
    row = [p - 3.5 if p else -4.5 for p in wanted]
    found = probabilities([row], built("sparsemax"))[0].tolist()
    assert found == pytest.approx(wanted, abs=1e-15)
    assert [p > 0 for p in found] == [p > 0 for p in wanted]


@pytest.mark.parametrize("step", [0, 1e-12, -1e-12, 1e-7, -1e-7, 1e-6, -1e-6, 2e-6, -2e-6])
def test_entmax_about_alpha_1_is_softmax(step: float) -> None:
    softmax = probabilities([[0, 0, 1]], built("softmax"))
    found = probabilities([[0, 0, 1]], built({"name": "entmax", "alpha": 1 + step}))
    assert float((found - softmax).abs().max()) <= 1e-6


# Types


@each_default
@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64], ids=str
)
def test_integer_logits_are_never_uniform(case: Case, dtype: torch.dtype) -> None:
    row = [3, 2, 1] if case in WIDE else [1, 0, 0]
    found = probabilities(torch.tensor([row], dtype=dtype), case.mapping(3))
    wanted = probabilities(torch.tensor([row], dtype=torch.float64), case.mapping(3))
    assert torch.equal(found, wanted)
    assert float(found.max() - found.min()) > 0.01


FLAT = [
    case
    for case in CASES
    if case.name in ("softmax", "sparsemax", "entmax", "t_softmax", "sparsegen", "taylor_softmax")
]


@pytest.mark.parametrize("case", FLAT, ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_a_flat_vocabulary_is_uniform(case: Case, dtype: torch.dtype) -> None:
    found = probabilities(torch.zeros(1, 128_256, dtype=dtype), case.mapping(128_256))
    assert float(found.min()) == pytest.approx(1 / 128_256, rel=1e-6)
    assert float(found.max()) == pytest.approx(1 / 128_256, rel=1e-6)
    assert float(found.double().sum()) == pytest.approx(1, abs=2e-6)


@pytest.mark.parametrize("case", PEAKED, ids=str)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_a_row_far_below_zero_is_one_hot(case: Case, dtype: torch.dtype) -> None:
    values = torch.zeros(1, 128, dtype=dtype) - 5
    values[0, 0] = 0
    values = values * 200 - 1000
    found = probabilities(values, case.mapping(128))
    assert bool(found.isfinite().all())
    if case.parameters.get("alpha", 1.5) < 1:
        assert int(found.argmax()) == 0
    else:
        assert found[0].tolist() == pytest.approx([1.0] + [0.0] * 127, abs=1e-6)


def test_a_support_of_fifty_thousand_is_exact() -> None:
    values = 0.01 * np.random.default_rng(0).standard_normal(128_256).astype(np.float32)
    z = values.astype(np.longdouble) / 2
    low, high = z.max() - 1, z.max()
    for _ in range(100):
        middle = (low + high) / 2
        above = (np.maximum(z - middle, 0) ** 2).sum() >= 1
        low, high = (middle, high) if above else (low, middle)
    wanted = (np.maximum(z - low, 0) ** 2).astype(np.float64)
    found = (
        probabilities(torch.from_numpy(values).unsqueeze(0), built("entmax"))[0].double().numpy()
    )
    assert 40_000 < (wanted > 0).sum() < 128_256
    assert np.all(np.abs(found - wanted) <= 1e-6 * wanted + 1e-13)


# Extreme logits and temperatures


@pytest.mark.parametrize("case", PEAKED, ids=str)
def test_huge_gaps_are_exact(case: Case) -> None:
    found = answer([[1e30, 0.0, -1e30]], case.mapping(3))
    got = present(found.probabilities)[0].tolist()
    assert got == pytest.approx([1.0, 0.0, 0.0], abs=1e-12)
    assert not bool(present(found.log_probabilities).isnan().any())


@pytest.mark.parametrize("case", WIDE, ids=str)
@pytest.mark.parametrize(
    ("size", "dtype"), [(3e38, torch.float32), (1.7e308, torch.float64), (6e4, torch.float16)]
)
def test_the_largest_floats_overflow_nothing(case: Case, size: float, dtype: torch.dtype) -> None:
    values = torch.tensor([[size, 0, -size], [-size, -size, -size], [size, size, 1]], dtype=dtype)
    found = answer(values, case.mapping(3))
    got = present(found.probabilities)
    assert got.double().sum(-1).tolist() == pytest.approx([1, 1, 1], abs=2e-6)
    assert not bool(present(found.log_probabilities).isnan().any())
    assert not bool(present(found.entropy).isnan().any())


@pytest.mark.parametrize("case", FREEZING, ids=str)
@pytest.mark.parametrize("temperature", [1e-5, 1e-30, 1e-40, 1e-300, 5e-324, 0])
def test_a_vanishing_temperature_is_one_hot_at_the_maximum(case: Case, temperature: float) -> None:
    mapping = at(case, 3, temperature=temperature)
    for values, place in (
        (torch.tensor([[1, 5, 2]], dtype=torch.float64), 1),
        (torch.tensor([[11.0625, 2.875, -1.9]], dtype=torch.float16), 0),
        (torch.tensor([[-1e-3, -2e-3, 0.0]], dtype=torch.float32), 2),
    ):
        found = answer(values, mapping)
        wanted = [float(index == place) for index in range(3)]
        if case.name == "weighted_softmax" and place == 2:
            wanted = [1.0, 0.0, 0.0]
        assert present(found.probabilities)[0].tolist() == pytest.approx(wanted, abs=1e-12)
        assert not bool(present(found.log_probabilities).isnan().any())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_largest_float32_divided_by_a_huge_temperature_is_exact(dtype: torch.dtype) -> None:
    values = torch.tensor([[3e38, -3e38]], dtype=dtype)
    found = probabilities(values, built({"name": "softmax", "temperature": 1e38}))[0].tolist()
    assert found == pytest.approx([0.99752738, 0.00247262], abs=1e-6)


@each_name
@pytest.mark.parametrize("temperature", [1e-300, 1e-30, 1e30, 1e300])
def test_any_temperature_gives_a_distribution(name: str, temperature: float) -> None:
    case = next(c for c in DEFAULTS if c.name == name)
    found = answer(logits(3, 5), at(case, 5, temperature=temperature))
    assert present(found.probabilities).sum(-1).tolist() == pytest.approx([1] * 3, abs=1e-10)
    assert not bool(present(found.log_probabilities).isnan().any())


# Invalid rows


@pytest.mark.parametrize(
    ("rows", "bad", "reason"),
    [
        ([[1, 2], [-math.inf, -math.inf]], 1, "no unmasked class"),
        ([[math.nan, 1], [1, 2]], 0, "nan at class 0"),
        ([[math.inf, 0], [0, 1]], 0, "+inf at class 0"),
        ([[0, 1], [0.5, math.nan]], 1, "nan at class 1"),
        ([[math.inf, math.nan], [0, 1]], 0, "nan at class 1"),
    ],
)
@each_default
def test_a_bad_row_is_named(case: Case, rows: list[list[float]], bad: int, reason: str) -> None:
    with pytest.raises(InvalidRow) as caught:
        answer(rows, case.mapping(2))
    assert caught.value.reasons == {bad: reason}
    assert f"row {bad}: {reason}" in caught.value.detail
    found = answer(rows, case.mapping(2), invalid_rows="report")
    good = 1 - bad
    assert found.status[bad] == reason
    assert found.status[good] == "ok"
    alone = probabilities([rows[good]], case.mapping(2))
    assert torch.equal(present(found.probabilities)[good], alone[0])


UNDEFINED: list[tuple[dict[str, Any], list[float]]] = [
    ({"name": "spherical_softmax"}, [0.0, 0.0, -math.inf]),
    ({"name": "normalized", "function": "square"}, [0.0, -0.0, -math.inf]),
    ({"name": "weighted_softmax", "weights": [0, 0, 1]}, [1.0, 2.0, -math.inf]),
    ({"name": "margin_softmax", "target": 0, "kind": "additive_angle"}, [1.5, 0.0, 0.0]),
]


@pytest.mark.parametrize(("request_", "row"), UNDEFINED)
def test_a_row_without_an_answer_is_named(request_: dict[str, Any], row: list[float]) -> None:
    mapping = built(request_)
    with pytest.raises(InvalidRow) as caught:
        answer([[0.5, 0.25, 0.75], row], mapping)
    assert list(caught.value.reasons) == [1]
    found = answer([[0.5, 0.25, 0.75], row], mapping, invalid_rows="report")
    assert found.status[0] == "ok"
    assert found.status[1] == MAPPINGS[request_["name"]].undefined
    alone = probabilities([[0.5, 0.25, 0.75]], mapping)
    assert torch.equal(present(found.probabilities)[0], alone[0])


def test_ten_thousand_bad_rows_make_a_short_error() -> None:
    with pytest.raises(InvalidRow) as caught:
        answer(torch.full((10_000, 3), math.nan), built("softmax"))
    assert len(caught.value.detail) < 500
    assert len(caught.value.problems) <= 10


# Parameters that cannot be


NOT_NUMBERS: list[Any] = [math.nan, math.inf, -math.inf, "1.5", True, None, [1.0, math.nan], [], {}]


def per_row_fields() -> list[tuple[str, str]]:
    return [(name, field) for name in NAMES for field in MAPPINGS[name].per_row_fields()]


@pytest.mark.parametrize(("name", "field"), per_row_fields())
@pytest.mark.parametrize("value", NOT_NUMBERS, ids=repr)
def test_what_is_not_a_number_is_refused(name: str, field: str, value: Any) -> None:
    case = next(c for c in DEFAULTS if c.name == name)
    optional = MAPPINGS[name].model_fields[field].default is None
    if value is None and optional:
        assert getattr(at(case, 3, **{field: None}), field) is None
        return
    if value == []:
        with pytest.raises(InvalidParameter):
            answer(torch.zeros(2, 3) + 0.5, at(case, 3, **{field: value}))
        return
    with pytest.raises(ValidationError):
        at(case, 3, **{field: value})


def scalar(schema: dict[str, Any]) -> dict[str, Any]:
    """The part of a per-row field's schema that describes one value."""
    while "type" not in schema:
        schema = (schema.get("oneOf") or schema["anyOf"])[0]
    return schema


def outside() -> list[tuple[str, str, float]]:
    """A value just past every bound that a per-row field has."""
    found: list[tuple[str, str, float]] = []
    for name, field in per_row_fields():
        schema = MAPPINGS[name].model_json_schema()["properties"][field]
        one = scalar(schema)
        whole = one["type"] == "integer"
        for key, step in (("minimum", -1), ("maximum", 1)):
            if key in one:
                past = one[key] + step if whole else math.nextafter(one[key], step * math.inf)
                found.append((name, field, past))
        for key in ("exclusiveMinimum", "exclusiveMaximum"):
            if key in one:
                found.append((name, field, one[key]))
    return found


@pytest.mark.parametrize(("name", "field", "value"), outside())
def test_a_value_past_its_bound_is_refused(name: str, field: str, value: float) -> None:
    case = next(c for c in DEFAULTS if c.name == name)
    for given in (value, [value], [0.5, value]):
        with pytest.raises(ValidationError):
            at(case, 3, **{field: given})


@pytest.mark.parametrize("k", [0, -1, 1.5, "3"])
def test_a_k_that_keeps_nothing_is_refused(k: Any) -> None:
    with pytest.raises(ValidationError):
        built({"name": "sparse_softmax", "k": k})


@pytest.mark.parametrize("order", [0, 1, 3, 18, -2, 2.5])
def test_an_odd_or_absent_order_is_refused(order: Any) -> None:
    with pytest.raises(ValidationError):
        built({"name": "taylor_softmax", "order": order})


@each_default
def test_an_unknown_field_is_refused(case: Case) -> None:
    with pytest.raises(ValidationError):
        at(case, 3, temprature=1.0)


def test_an_unknown_mapping_is_named() -> None:
    with pytest.raises(UnknownName, match="'sofmax'"):
        built("sofmax")


@pytest.mark.parametrize(("name", "field"), per_row_fields())
def test_a_list_of_the_wrong_length_is_refused(name: str, field: str) -> None:
    case = next(c for c in DEFAULTS if c.name == name)
    value = getattr(case.mapping(3), field)
    for count in (1, 2, 4):
        given = [1 if value is None else value] * count
        with pytest.raises(InvalidParameter) as caught:
            answer(torch.zeros(3, 3) + 0.5, at(case, 3, **{field: given}))
        assert field in caught.value.detail
        assert caught.value.problems[0].loc[0] == field


@pytest.mark.parametrize(
    "weights", [[1, 1], [1, 1, 1, 1], [[1, 1, 1]], [[1, 1], [1, 1]], [[1, 1, 1]] * 3]
)
def test_weights_of_the_wrong_shape_are_refused(weights: Any) -> None:
    with pytest.raises(InvalidParameter) as caught:
        answer(torch.zeros(2, 3), built({"name": "weighted_softmax", "weights": weights}))
    assert caught.value.problems[0].loc[0] == "weights"


@pytest.mark.parametrize(
    "weights",
    [[], [[]], 1, "1", [1, -1, 1], [1, math.nan, 1], [1, math.inf, 1], [1, "1", 1], [True]],
)
def test_weights_that_are_no_weights_are_refused(weights: Any) -> None:
    with pytest.raises(ValidationError):
        built({"name": "weighted_softmax", "weights": weights})


def test_a_target_past_the_classes_is_refused() -> None:
    for target in (3, [0, 3], 2**40):
        with pytest.raises(InvalidParameter, match="target"):
            answer(torch.zeros(2, 3), built({"name": "margin_softmax", "target": target}))


# Keeping the largest


@pytest.mark.parametrize("k", [2, 3, 50, 1 << 40])
def test_a_k_beyond_the_classes_keeps_all(k: int) -> None:
    found = probabilities([[0.5, 0.25]], built({"name": "sparse_softmax", "k": k}))
    assert torch.equal(found, probabilities([[0.5, 0.25]], built("softmax")))


@pytest.mark.parametrize(("ties", "kept"), [("first", [4, 1, 2]), ("all", [4, 1, 2, 3])])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_ties_are_broken_by_lower_class(ties: str, kept: list[int], dtype: torch.dtype) -> None:
    values = torch.tensor([[1, 2, 2, 2, 3]], dtype=dtype)
    found = answer(values, built({"name": "sparse_softmax", "k": 3, "ties": ties}))
    assert listed(supported(found), 0) == kept


@pytest.mark.parametrize("classes", [5, 64, 1000, 50_000])
@pytest.mark.parametrize("k", [1, 2, 50, 300])
def test_ties_are_broken_by_lower_class_in_long_rows(classes: int, k: int) -> None:
    values = (2 * logits(3, classes, seed=4)).round()
    found = answer(values, built({"name": "sparse_softmax", "k": k}))
    for row in range(3):
        order = sorted(range(classes), key=lambda index: (-float(values[row, index]), index))
        assert listed(supported(found), row) == order[:k]


NUCLEI = [
    (0.8, [0.5, 0.3, 0.1, 0.1], 2),
    (0.9, [0.5, 0.35, 0.1, 0.05], 3),
    (0.0, [0.5, 0.3, 0.1, 0.1], 1),
    (0.0, [0.25, 0.25, 0.25, 0.25], 1),
    (1e-4, [0.5, 0.3, 0.1, 0.1], 1),
    (1.0, [0.5, 0.3, 0.1, 0.1], 4),
]


@pytest.mark.parametrize(("p", "masses", "kept"), NUCLEI)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_a_nucleus_is_the_shortest_prefix(
    p: float, masses: list[float], kept: int, dtype: torch.dtype
) -> None:
    values = torch.tensor([masses], dtype=torch.float64).log().to(dtype)
    found = answer(values, built({"name": "sparse_softmax", "p": p}))
    assert listed(supported(found), 0) == list(range(kept))


def test_a_tiny_nucleus_of_bfloat16_keeps_one() -> None:
    values = logits(4, 1000, seed=2, dtype=torch.bfloat16)
    found = answer(values, built({"name": "sparse_softmax", "p": 1e-4}))
    assert present(found.support_size).tolist() == [1] * 4


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("width", [0.0, 1.0, 20.0])
def test_nearly_all_the_mass_of_a_vocabulary_is_kept(dtype: torch.dtype, width: float) -> None:
    values = (width * logits(1, 128_256)).to(dtype)
    every = present(answer(values, built({"name": "sparse_softmax", "p": 1.0})).support_size)
    assert every.tolist() == [128_256]
    most = answer(values, built({"name": "sparse_softmax", "p": 0.9999999}))
    assert float(present(most.probabilities).double().sum()) == pytest.approx(1, abs=2e-6)
    kept = int(present(most.support_size))
    masses = torch.softmax(values.double(), -1).sort(descending=True).values
    assert float(masses[0, kept:].sum()) <= 1e-7 * (1 + 2e-6)


def test_every_row_has_its_own_parameters() -> None:
    values = logits(4, 50)
    found = answer(
        values,
        built(
            {
                "name": "sparse_softmax",
                "k": [1, 7, 50, 3],
                "p": [1.0, 1.0, 0.5, 0.0],
                "temperature": [1.0, 0.5, 2.0, 3.0],
            }
        ),
    )
    for row, (k, p, temperature) in enumerate(
        [(1, 1.0, 1.0), (7, 1.0, 0.5), (50, 0.5, 2.0), (3, 0.0, 3.0)]
    ):
        request = {"name": "sparse_softmax", "k": k, "p": p, "temperature": temperature}
        exact = reference.distribution(request, values[row].tolist())
        got = present(found.probabilities)[row].tolist()
        assert got == pytest.approx(exact.doubles(), abs=1e-12)


def test_a_single_kept_class_leaves_minus_infinity_elsewhere() -> None:
    found = answer([[0.5, 2.0, 1.0]], built({"name": "sparse_softmax", "k": 1}))
    assert present(found.log_probabilities).tolist() == [[-math.inf, 0.0, -math.inf]]
    assert present(found.entropy).tolist() == [0.0]
    assert not math.copysign(1, float(present(found.entropy))) < 0


# Random mappings


@pytest.mark.parametrize("field", [{"temperature": 0}, {"hard": True}, {"temperature": 1e-300}])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16], ids=str)
def test_a_frozen_gumbel_softmax_is_one_hot(field: dict[str, Any], dtype: torch.dtype) -> None:
    values = logits(50, 20, dtype=dtype)
    request = {"name": "gumbel_softmax", "seed": list(range(50))}
    found = answer(values, built({**request, **field}))
    assert present(found.probabilities).sort(-1).values.tolist() == [[0.0] * 19 + [1.0]] * 50
    soft = probabilities(values, built(request))
    assert torch.equal(present(found.probabilities).argmax(-1), soft.argmax(-1))


def test_a_million_gumbels_are_finite_and_gumbel() -> None:
    seeds = torch.arange(8, dtype=torch.int64).unsqueeze(-1)
    noise = gumbel(seeds, 125_000)
    assert bool(noise.isfinite().all())
    for row in noise:
        assert stats.kstest(row.numpy(), "gumbel_r").pvalue > 1e-3
    values = torch.full((8, 125_000), 6e4, dtype=torch.float16)
    found = probabilities(values, built({"name": "gumbel_softmax", "seed": list(range(8))}))
    assert bool(found.isfinite().all())


@pytest.mark.parametrize("seed", [0, 7, (1 << 64) - 1])
def test_gumbel_softmax_is_softmax_of_noisy_logits(seed: int) -> None:
    values = 3 * logits(1, 6)
    # At T = 1, log p is x + g up to a constant; what the noise is does not depend on x or T.
    flat = answer(
        torch.zeros(1, 6), built({"name": "gumbel_softmax", "seed": seed}), dtype=torch.float64
    )
    noise = present(flat.log_probabilities)
    for temperature in (0.5, 1.0, 4.0):
        request = {"name": "gumbel_softmax", "seed": seed, "temperature": temperature}
        exact = reference.distribution(
            {"name": "softmax", "temperature": temperature}, (values + noise)[0].tolist()
        )
        assert probabilities(values, built(request))[0].tolist() == pytest.approx(
            exact.doubles(), abs=1e-12
        )


def test_the_winner_of_gumbel_softmax_is_distributed_as_softmax() -> None:
    draws = 100_000
    row = torch.tensor([[0.0, 1.0, -1.0, 2.0, 0.5, -3.0]], dtype=torch.float64)
    request = {"name": "gumbel_softmax", "seed": list(range(draws)), "hard": True}
    winners = probabilities(row.expand(draws, -1), built(request)).sum(0)
    expected = draws * torch.softmax(row[0], -1)
    assert stats.chisquare(winners.numpy(), expected.numpy()).pvalue > 1e-3


@pytest.mark.parametrize("classes", [3, 1000])
def test_the_same_seed_is_the_same_noise_in_every_row(classes: int) -> None:
    values = logits(1, classes).expand(5, -1)
    found = probabilities(values, built({"name": "gumbel_softmax", "seed": [7, 8, 7, 9, 7]}))
    assert torch.equal(found[0], found[2])
    assert torch.equal(found[0], found[4])
    assert not torch.equal(found[0], found[1])
