"""Jacobians and parameter gradients: every form, against differences, closed forms and 60 digits.

The dense Jacobian is compared with central differences in float64 and, at 3 classes, with
differences of the reference in 60 digits; every other form is compared with the dense one.
"""

import ast
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from answers import present
from cases import CASES, DEFAULTS, Case, built, logits, spread
from differences import assert_slopes, exact_slopes, slopes
from mappings import answer as answer_module
from mappings.base import Mapping
from mappings.errors import InvalidParameter, OutputTooLarge
from mappings.evaluate import evaluate
from mappings.evaluation import JacobianAnswer
from mappings.jacobian import Form, Jacobian
from mappings.parameters import joined
from mappings.processor import Processor
from mappings.registry import MAPPINGS, PROCESSORS
from mappings.support import Support
from mappings.wanted import Derivatives

VOCABULARY = 151_936
FORMS: tuple[Form, ...] = ("dense", "support", "factors", "jvp", "vjp")

each_case = pytest.mark.parametrize("case", CASES, ids=str)
each_default = pytest.mark.parametrize("case", DEFAULTS, ids=str)


def chained(*steps: dict[str, Any]) -> list[Processor]:
    return [PROCESSORS[step["name"]](**step) for step in steps]


def jacobian(
    values: Tensor,
    mapping: Mapping,
    form: Form = "dense",
    vector: Tensor | None = None,
    processors: Sequence[Processor] = (),
) -> JacobianAnswer:
    found = evaluate(
        values,
        mapping,
        processors=processors,
        outputs=["jacobian"],
        derivatives=Derivatives(form, vector),
    ).jacobian
    assert found is not None
    assert found.form == form
    return found


def dense(values: Tensor, mapping: Mapping, processors: Sequence[Processor] = ()) -> Tensor:
    return present(jacobian(values, mapping, "dense", None, processors).matrix)


def masses(values: Tensor, mapping: Mapping, processors: Sequence[Processor] = ()) -> Tensor:
    return present(evaluate(values, mapping, processors=processors).probabilities)


def gradients(
    values: Tensor, mapping: Mapping, processors: Sequence[Processor] = ()
) -> dict[str, Tensor]:
    found = evaluate(values, mapping, processors=processors, outputs=["parameter_gradients"])
    assert found.parameter_gradients is not None
    return found.parameter_gradients


def directions(row: Tensor, most: int) -> Tensor:
    """Up to so many unmasked classes one by one and, when there are more, all of them mixed."""
    unmasked = (row > -math.inf).nonzero().flatten()
    picked = unmasked[:: -(-unmasked.numel() // most)]
    found = torch.eye(row.numel(), dtype=torch.float64)[picked]
    if picked.numel() == unmasked.numel():
        return found
    mixed = torch.where(row > -math.inf, logits(2, row.numel(), seed=8), 0)
    return torch.cat([found, mixed])


def assert_differences(
    row: Tensor, mapping: Mapping, processors: Sequence[Processor] = (), most: int = 5
) -> None:
    """The dense Jacobian of one row is what central differences give; masked classes have 0."""
    found = dense(row.unsqueeze(0), mapping, processors)[0]
    ways = directions(row, most)
    wanted = slopes(lambda points: masses(points, mapping, processors), row, ways)
    assert_slopes(ways @ found.T, wanted)
    masked = row == -math.inf
    assert not bool(found[masked].any())
    assert not bool(found[:, masked].any())


def rows_of(case: Case, classes: int, seed: int = 0) -> Tensor:
    """Five rows: two plain, one with ties below its maximum, two with masked classes."""
    # Differences need room on both sides of a cosine.
    values = spread(case, 0.95 * logits(5, classes, seed))
    order = values[2].argsort(descending=True)
    if classes > 3:
        values[2, order[-4]] = values[2, order[-3]]
        values[3, 1::3] = -math.inf
    if classes > 1:
        values[4, classes // 2] = -math.inf
    return values


def few(case: Case, values: Tensor) -> Tensor:
    """All rows, or one where each costs 128 times what it does elsewhere."""
    return values[1:2] if case.name == "perturb_max" and values.shape[-1] > 7 else values


# Against differences


@each_case
@pytest.mark.parametrize("classes", [1, 3, 50])
def test_the_dense_jacobian_agrees_with_differences(case: Case, classes: int) -> None:
    for row in few(case, rows_of(case, classes)[:2]):
        assert_differences(row, case.mapping(classes))


@each_case
@pytest.mark.parametrize("classes", [7, 50])
def test_the_dense_jacobian_agrees_with_differences_beside_masks_and_ties(
    case: Case, classes: int
) -> None:
    for row in few(case, rows_of(case, classes, seed=1)[2:4]):
        assert_differences(row, case.mapping(classes))


@each_default
def test_masks_are_right_wherever_they_stand(case: Case) -> None:
    classes = 5
    values = rows_of(case, classes, seed=2)[0]
    for first in range(classes):
        for second in range(first, classes):
            row = values.clone()
            row[[first, second]] = -math.inf
            assert_differences(row, case.mapping(classes), most=2)


FROZEN = [case for case in CASES if case.parameters.get("temperature") in (0, 1e-30)]
QUICK = [
    case
    for case in CASES
    if case not in FROZEN
    and case.name != "gumbel_softmax"
    and (case.name != "perturb_max" or case.parameters.get("noise") in ("gumbel", "uniform"))
]
"""What the reference answers in 60 digits, and not after minutes of quadrature."""


@pytest.mark.parametrize("case", QUICK, ids=str)
@pytest.mark.parametrize("classes", [3, 6])
def test_the_dense_jacobian_agrees_with_the_reference(case: Case, classes: int) -> None:
    row = spread(case, logits(1, classes, seed=5))
    found = dense(row, case.mapping(classes))[0]
    wanted = exact_slopes(case.request(classes), row[0].tolist())
    scale = max(1.0, float(wanted.abs().max()))
    bound = 1e-8 if case.name == "perturb_max" else 1e-10
    assert float((found - wanted).abs().max()) <= bound * scale


@pytest.mark.parametrize(
    ("noise", "difference"),
    [(noise, d) for noise in ("normal", "gumbel", "logistic", "uniform", "exponential")
     for d in (0.25, 0.5, 0.875)],
)  # fmt: skip
def test_perturb_max_of_two_classes_has_the_closed_form(noise: str, difference: float) -> None:
    d, e = difference, math.exp(-difference)
    wanted = {
        "normal": math.exp(-d * d / 4) / math.sqrt(4 * math.pi),
        "gumbel": e / (1 + e) ** 2,
        "logistic": e * (d * (1 + e) - 2 * (1 - e)) / (1 - e) ** 3,
        "uniform": 1 - d,
        "exponential": e / 2,
    }[noise]
    for temperature in (1.0, 0.5, 3.0):
        values = torch.tensor([[d * temperature, 0.0]], dtype=torch.float64)
        mapping = built({"name": "perturb_max", "noise": noise, "temperature": temperature})
        slope = wanted / temperature
        expected = torch.tensor([[[slope, -slope], [-slope, slope]]], dtype=torch.float64)
        assert float((dense(values, mapping) - expected).abs().max()) <= 1e-11


# The forms


def assert_forms_agree(
    values: Tensor, mapping: Mapping, processors: Sequence[Processor] = ()
) -> None:
    """Support, factors and both products say what the dense form says."""
    whole = dense(values, mapping, processors)
    close = 1e-13 * max(1.0, float(whole.abs().max()))
    rows, classes = values.shape

    listed = jacobian(values, mapping, "support", None, processors)
    assert listed.blocks is not None
    assert listed.indices is not None
    support = evaluate(values, mapping, processors=processors, outputs=["support"]).support
    assert isinstance(support, Support)
    for row, (block, ids) in enumerate(zip(listed.blocks, listed.indices, strict=True)):
        assert ids.tolist() == support.rows(row, row + 1).indices.tolist()
        assert float((block - whole[row][ids][:, ids]).abs().max()) <= close
        outside = torch.ones(classes, dtype=torch.bool).index_fill(0, ids.long(), False)
        assert not bool(whole[row][outside].any())

    factors = jacobian(values, mapping, "factors", None, processors)
    left, right = present(factors.left), present(factors.right)
    assert left.shape == right.shape == (rows, classes, left.shape[-1])
    multiplied = torch.diag_embed(present(factors.diagonal)) - left @ right.transpose(1, 2)
    assert float((multiplied - whole).abs().max()) <= 8 * close

    # What a masked class is given in the vector must not matter.
    vector = logits(rows, classes, seed=6)
    products: list[tuple[Form, Tensor]] = [("jvp", whole), ("vjp", whole.transpose(1, 2))]
    for form, matrix in products:
        product = present(jacobian(values, mapping, form, vector, processors).product)
        wanted = (matrix @ vector.unsqueeze(-1)).squeeze(-1)
        assert product.shape == (rows, classes)
        assert float((product - wanted).abs().max()) <= 8 * close


@each_case
@pytest.mark.parametrize("classes", [3, 50])
def test_every_form_agrees_with_the_dense_one(case: Case, classes: int) -> None:
    assert_forms_agree(rows_of(case, classes, seed=3), case.mapping(classes))


@each_case
@pytest.mark.parametrize("classes", [1, 3, 50])
def test_columns_sum_to_zero_and_rows_too_where_shifts_change_nothing(
    case: Case, classes: int
) -> None:
    found = dense(rows_of(case, classes, seed=3), case.mapping(classes))
    close = 1e-12 * max(1.0, float(found.abs().max()))
    assert float(found.sum(1).abs().max()) <= close
    if MAPPINGS[case.name].shift_invariant:
        assert float(found.sum(2).abs().max()) <= close


@pytest.mark.parametrize(
    "case", [c for c in CASES if c.parameters.get("temperature") == 0 or c.parameters.get("hard")],
    ids=str,
)  # fmt: skip
def test_nothing_moves_at_zero_temperature(case: Case) -> None:
    values = rows_of(case, 6)
    values[1, 0] = values[1].max() if "weights" not in case.parameters else values[1, 0]
    for form in FORMS:
        found = jacobian(values, case.mapping(6), form, logits(5, 6))
        parts = [found.matrix, found.product, *(found.blocks or [])]
        assert not any(bool(part.any()) for part in parts if part is not None)
    factors = jacobian(values, case.mapping(6), "factors")
    assert not bool(present(factors.diagonal).any())
    multiplied = present(factors.left) @ present(factors.right).transpose(1, 2)
    assert not bool(multiplied.any())
    moves = gradients(values, case.mapping(6))
    assert not any(bool(part.any()) for part in moves.values())


@each_case
@pytest.mark.parametrize("temperature", [1e-300, 1e-30, 1e300])
def test_any_temperature_gives_finite_products(case: Case, temperature: float) -> None:
    mapping = built({**case.request(5), "temperature": temperature})
    values, vector = rows_of(case, 5), logits(5, 5)
    products: tuple[Form, ...] = ("jvp", "vjp")
    for form in products:
        found = present(jacobian(values, mapping, form, vector).product)
        assert not bool(found.isnan().any())
    assert not any(bool(part.isnan().any()) for part in gradients(values, mapping).values())


# Processors before the mapping


CHAINS: dict[str, list[dict[str, Any]]] = {
    "temperature": [{"name": "temperature", "value": 0.7}],
    "bias": [{"name": "bias", "ids": [1, 3, 1], "values": [0.25, -0.125, 0.0625]}],
    "repetition": [{"name": "repetition_penalty", "penalty": 1.25, "ids": [0, 2, 4]}],
    "counts": [{"name": "presence_frequency", "presence": 0.125, "frequency": 0.0625,
                "ids": [1, 2, 6], "counts": [2, 0, 1]}],
    "top_k": [{"name": "top_k", "k": 5}],
    "top_p": [{"name": "top_p", "p": 0.8}],
    "min_p": [{"name": "min_p", "ratio": 0.05}],
    "ban": [{"name": "ban", "ids": [1, 5]}],
    "allow": [{"name": "allow", "ids": [0, 2, 3, 5, 6]}],
    "all": [{"name": "repetition_penalty", "penalty": 1.25, "ids": [0, 2]},
            {"name": "bias", "ids": [3], "values": [0.125]},
            {"name": "temperature", "value": 1.5},
            {"name": "ban", "ids": [4]},
            {"name": "top_k", "k": 6},
            {"name": "temperature", "value": 0.5},
            {"name": "top_p", "p": 0.95},
            {"name": "min_p", "ratio": 0.01}],
}  # fmt: skip

each_chain = pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)


@each_default
@each_chain
def test_jacobians_go_through_processors(case: Case, chain: list[dict[str, Any]]) -> None:
    processors, request = chained(*chain), case.request(7)
    values = 0.75 * rows_of(case, 7, seed=4)
    if case.name == "margin_softmax":
        # The target stays the largest, so that no step cuts it off.
        values[:, 0] = 0.7
    if "weights" in request:
        # Steps know no weights and may leave only classes of weight 0.
        request["weights"] = [0.5 + weight for weight in request["weights"]]
    for row in values[1:4:2]:
        assert_differences(row, built(request), processors)
    assert_forms_agree(values, built(request), processors)


@each_default
@pytest.mark.parametrize("chain", [CHAINS["all"], CHAINS["repetition"]], ids=["all", "repetition"])
def test_parameter_gradients_go_through_processors(case: Case, chain: list[dict[str, Any]]) -> None:
    processors = chained(*chain)
    values = 0.6 * rows_of(case, 7, seed=4)
    if case.name == "margin_softmax":
        values[:, 0] = 0.9
    request = case.request(7)
    for row in values:
        assert_parameter(request, "temperature", row, processors)


def test_each_row_of_a_chain_has_its_own_slope() -> None:
    values = 3 * logits(3, 6, seed=1)
    processors = chained(
        {"name": "temperature", "value": [0.5, 1.0, 2.0]},
        {"name": "repetition_penalty", "penalty": [1.5, 1.0, 0.5], "ids": [[0], [], [2, 3]]},
    )
    together = dense(values, built("softmax"), processors)
    for row in range(3):
        alone = dense(values[row : row + 1], built("softmax"), [
            processor.take(row, row + 1) for processor in processors
        ])  # fmt: skip
        assert torch.equal(together[row], alone[0])


# Parameters


def assert_parameter(
    request: dict[str, Any], parameter: str, row: Tensor, processors: Sequence[Processor] = ()
) -> None:
    """∂p/∂parameter of one row is what central differences give."""
    got = gradients(row.unsqueeze(0), built(request), processors)[parameter]
    value = float(request.get(parameter, MAPPINGS[request["name"]].model_fields[parameter].default))

    def at(points: Tensor) -> Tensor:
        mapping = built({**request, parameter: (value * (1 + points.squeeze(-1))).tolist()})
        return masses(row.expand(points.shape[0], -1), mapping, processors)

    zero = torch.zeros(1, dtype=torch.float64)
    wanted = slopes(at, zero, torch.ones(1, 1, dtype=torch.float64))
    assert_slopes(got * value, wanted)


MOVING = [case for case in CASES if case.parameters.get("temperature", 1) != 0]


@pytest.mark.parametrize("case", MOVING, ids=str)
@pytest.mark.parametrize("classes", [3, 50])
def test_the_gradient_by_temperature_agrees_with_differences(case: Case, classes: int) -> None:
    for row in few(case, rows_of(case, classes, seed=7)[2:4]):
        assert_parameter(case.request(classes), "temperature", row)


@pytest.mark.parametrize("case", QUICK, ids=str)
def test_the_gradient_by_temperature_agrees_with_the_reference(case: Case) -> None:
    row = spread(case, logits(1, 5, seed=7))
    request = case.request(5)
    request["temperature"] = float(request.get("temperature", 1))
    found = gradients(row, built(request))["temperature"][0]
    wanted = exact_slopes(request, row[0].tolist(), "temperature")
    assert float((found - wanted).abs().max()) <= 1e-10 * max(1.0, float(wanted.abs().max()))


def test_only_entmax_moves_with_alpha_and_everything_with_temperature() -> None:
    for case in DEFAULTS:
        moved = {"temperature", "alpha"} if case.name == "entmax" else {"temperature"}
        assert set(gradients(rows_of(case, 5), case.mapping(5))) == moved


ALPHAS = [0.5, 0.9, 1.25, 1.5, 1.999, 2.0, 2.001, 3.0]


@pytest.mark.parametrize("alpha", [0.25, *ALPHAS, 6.0])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_the_gradient_by_alpha_agrees_with_differences(alpha: float, temperature: float) -> None:
    request = {"name": "entmax", "alpha": alpha, "temperature": temperature}
    values = 3 * logits(3, 20, seed=2)
    values[1, 3:9] = -math.inf
    values[2, 4] = values[2, 5]
    for row in values:
        assert_parameter(request, "alpha", row)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_gradient_by_alpha_agrees_with_the_reference(alpha: float) -> None:
    row = 2 * logits(1, 4, seed=3)
    request = {"name": "entmax", "alpha": alpha, "temperature": 1.5}
    found = gradients(row, built(request))["alpha"][0]
    assert float((found - exact_slopes(request, row[0].tolist(), "alpha")).abs().max()) <= 1e-11


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("step", [0.0, 1e-7, -1e-7])
def test_the_gradient_by_alpha_at_softmax_is_its_limit(temperature: float, step: float) -> None:
    row = 2 * logits(1, 6, seed=4)
    row[0, 2] = -math.inf
    request = {"name": "entmax", "alpha": 1 + step, "temperature": temperature}
    found = gradients(row, built(request))["alpha"]
    p = masses(row, built({"name": "softmax", "temperature": temperature}))
    squares = torch.where(p > 0, p.log().square(), 0)
    closed = p * ((p * squares).sum() - squares) / 2
    assert float((found - closed).abs().max()) <= 1e-14

    def at(points: Tensor) -> Tensor:
        alphas = (1 + points.squeeze(-1)).tolist()
        mapping = built({"name": "entmax", "alpha": alphas, "temperature": temperature})
        return masses(row.expand(points.shape[0], -1), mapping)

    # Steps of 2e-2 and more are far outside of the 1e-6 within which entmax is softmax.
    edges = torch.tensor([[-0.02], [-0.01], [0.01], [0.02]], dtype=torch.float64)
    far_below, below, above, far_above = at(edges)
    differences = (8 * (above - below) - (far_above - far_below)) / 0.12
    assert float((found[0] - differences).abs().max()) <= 1e-6


@pytest.mark.parametrize("step", [2e-6, -2e-6, 1e-4, -1e-4, 1e-3, -1e-3])
def test_the_gradient_by_alpha_is_continuous_about_softmax(step: float) -> None:
    row = 2 * logits(1, 6, seed=4)
    at, beside = (
        gradients(row, built({"name": "entmax", "alpha": alpha}))["alpha"]
        for alpha in (1.0, 1.0 + step)
    )
    assert float((at - beside).abs().max()) <= 10 * abs(step)


# Batches


def same(first: Tensor, second: Tensor) -> bool:
    """Whether all bits agree."""
    kind = {torch.float64: torch.int64, torch.float32: torch.int32}[first.dtype]
    return torch.equal(first.contiguous().view(kind), second.contiguous().view(kind))


def derived(values: Tensor, mapping: Mapping, vector: Tensor) -> list[dict[str, Tensor]]:
    """All derivatives of each row by name."""
    parts: list[dict[str, Tensor]] = [{} for _ in values]
    for form in FORMS:
        found = jacobian(values, mapping, form, vector)
        for name in ("matrix", "product", "diagonal", "left", "right", "blocks"):
            rows = getattr(found, name)
            for part, value in zip(parts, rows if rows is not None else [], strict=False):
                part[f"{form} {name}"] = value
    for name, moves in gradients(values, mapping).items():
        for part, value in zip(parts, moves, strict=True):
            part[f"by {name}"] = value
    return parts


def assert_same(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    assert first.keys() == second.keys()
    for name, value in first.items():
        other = second[name]
        if name.startswith("factors") and value.ndim == 2:
            # A batch has as many columns as its richest row; those beyond are 0.
            rank = min(value.shape[-1], other.shape[-1])
            assert not bool(value[:, rank:].any())
            assert not bool(other[:, rank:].any())
            value, other = value[:, :rank], other[:, :rank]
        assert same(value, other), name


@pytest.mark.parametrize(
    ("case", "classes", "dtype"),
    [
        *((case, 3, torch.float64) for case in CASES),
        *((case, 70, torch.float32) for case in DEFAULTS),
    ],
    ids=str,
)
def test_derivatives_have_the_same_bits_in_any_batch(
    case: Case, classes: int, dtype: torch.dtype
) -> None:
    if case.name == "perturb_max":
        classes = min(classes, 40)
    mapping = case.mapping(classes)
    mates = [c.mapping(classes) for c in CASES if c.name == case.name]
    mates = [mate for mate in mates if mate.batch_key() == mapping.batch_key()]
    values = spread(case, logits(9, classes, seed=9)).to(dtype)
    values[2] = 0.5
    values[5, 1:] = -math.inf
    values[7, : classes // 2] = -math.inf
    values[7, 0] = 0.25
    vector = logits(9, classes, seed=10)
    parts = [mates[row % len(mates)] for row in range(9)]
    batch = joined([(part, 1) for part in parts])
    assert isinstance(batch, Mapping)
    together = derived(values, batch, vector)
    for row in (0, 7):
        alone = derived(values[row : row + 1], parts[row], vector[row : row + 1])
        assert_same(together[row], alone[0])


@each_default
def test_products_have_the_same_bits_however_the_batch_is_cut(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    classes = 3_000 if case.name == "perturb_max" else 20_000
    values = spread(case, logits(4, classes, dtype=torch.float32))
    vector, mapping = logits(4, classes, seed=3), case.mapping(classes)
    alone = [
        present(jacobian(values[i : i + 1], mapping, "vjp", vector[i : i + 1]).product)[0]
        for i in range(4)
    ]
    for elements in (classes, 3 * classes, 1 << 30):
        monkeypatch.setattr(type(mapping), "elements_at_once", elements)
        together = present(jacobian(values, mapping, "vjp", vector).product)
        assert all(same(together[row], alone[row]) for row in range(4))
        factors = jacobian(values, mapping, "factors")
        assert present(factors.left).shape[:2] == (4, classes)


def test_bad_rows_are_blank_and_leave_the_others_alone() -> None:
    values = torch.tensor([[0.5, 1, 2], [math.nan, 1, 2], [3, 1, 2]], dtype=torch.float64)
    vector = logits(3, 3)
    for case in DEFAULTS:
        rows = values / 4
        good = rows[[0, 2]]
        mapping = case.mapping(3)
        for form in FORMS:
            found = evaluate(
                rows,
                mapping,
                outputs=["jacobian", "parameter_gradients"],
                invalid_rows="report",
                derivatives=Derivatives(form, vector),
            )
            assert found.status == ["ok", "nan at class 0", "ok"]
            wanted = jacobian(good, mapping, form, vector[[0, 2]])
            assert found.jacobian is not None
            assert found.parameter_gradients is not None
            assert bool(found.parameter_gradients["temperature"][1].isnan().all())
            for name in ("matrix", "product", "diagonal", "left", "right"):
                whole, part = getattr(found.jacobian, name), getattr(wanted, name)
                if part is not None:
                    assert bool(whole[1].isnan().all())
                    assert torch.equal(whole[[0, 2]], part)
            if form == "support":
                assert found.jacobian.blocks is not None
                assert wanted.blocks is not None
                assert found.jacobian.blocks[1].shape == (0, 0)
                assert torch.equal(found.jacobian.blocks[2], wanted.blocks[1])


def test_an_empty_batch_has_empty_derivatives() -> None:
    for case in DEFAULTS:
        nothing = torch.empty(0, 4, dtype=torch.float64)
        for form in FORMS:
            found = jacobian(nothing, case.mapping(4), form, nothing)
            parts = [found.matrix, found.product, found.diagonal, found.left]
            assert all(part.shape[0] == 0 for part in parts if part is not None)
            assert not found.blocks


# Vocabularies


def refused(*_: object) -> None:
    raise AssertionError("a matrix was formed")


LONGEST = [case for case in DEFAULTS if case.name != "perturb_max"] + [
    case for case in CASES if str(case) == "perturb_max-exponential"
]
"""The first case of each mapping; of perturb_max the noise that is integrated the fastest."""


@pytest.mark.parametrize("case", LONGEST, ids=str)
def test_products_of_a_vocabulary_agree_with_differences(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Jacobian, "dense", refused)
    monkeypatch.setattr(torch, "diag_embed", refused)
    # Flat enough that many classes matter.
    values = spread(case, logits(1, VOCABULARY)) * (0.9 if case.name == "margin_softmax" else 0.5)
    mapping = case.mapping(VOCABULARY)
    picked = [*values[0].topk(2).indices.tolist(), 0, VOCABULARY - 1]
    way = torch.zeros(1, VOCABULARY, dtype=torch.float64)
    way[0, picked] = torch.tensor([1.0, -0.5, 2.0, 0.25], dtype=torch.float64)

    def moved(step: float) -> Tensor:
        return masses(values + step * way, mapping)

    differences = (moved(1e-5) - moved(-1e-5)) / 2e-5
    u = logits(1, VOCABULARY, seed=5)
    backward = present(jacobian(values, mapping, "vjp", u).product)
    assert float((backward * way).sum()) == pytest.approx(float((u * differences).sum()), abs=1e-8)
    assert float(differences.abs().max()) > 0
    if case.name == "perturb_max":
        # Each of these takes 128 times as long here.
        return
    forward = present(jacobian(values, mapping, "jvp", way).product)
    assert float((forward - differences).abs().max()) <= 1e-8
    factors = jacobian(values, mapping, "factors")
    left, right = present(factors.left)[0], present(factors.right)[0]
    assert left.shape[-1] <= 2
    multiplied = present(factors.diagonal)[0] * u[0] - right @ (left.T @ u[0])
    assert float((multiplied - backward[0]).abs().max()) <= 1e-13


def test_the_support_form_of_a_vocabulary_is_as_small_as_its_support() -> None:
    values = 20 * logits(3, VOCABULARY, dtype=torch.float32)
    for request in ({"name": "sparsemax", "temperature": 0.05}, {"name": "sparse_softmax", "k": 7}):
        found = jacobian(values, built(request), "support")
        assert found.blocks is not None
        assert all(0 < block.shape[0] == block.shape[1] < 100 for block in found.blocks)


# Limits


def test_a_dense_jacobian_beyond_the_limit_names_it_and_what_to_ask_instead() -> None:
    values = logits(4, 1000)
    with pytest.raises(OutputTooLarge) as caught:
        evaluate(values, built("softmax"), outputs=["jacobian"], output_limit=3_999_999)
    for word in ("4,000,000", "3,999,999", "factors", "jvp", "vjp", "dense"):
        assert word in caught.value.detail
    evaluate(values[:1], built("softmax"), outputs=["jacobian"], output_limit=1_000_000)


def test_a_dense_jacobian_of_a_vocabulary_is_refused_before_anything_is_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MAPPINGS["softmax"], "solve", refused)
    with pytest.raises(OutputTooLarge):
        evaluate(
            torch.zeros(1, VOCABULARY),
            built("softmax"),
            outputs=["jacobian"],
            output_limit=1 << 28,
        )


@pytest.mark.parametrize("form", ["support", "factors"])
def test_other_forms_have_the_limit_too(form: Form) -> None:
    with pytest.raises(OutputTooLarge, match=form):
        evaluate(
            logits(4, 1000),
            built("softmax"),
            outputs=["jacobian"],
            derivatives=Derivatives(form),
            output_limit=11_999 if form == "factors" else 999_999,
        )


def test_the_factors_of_perturb_max_are_counted_before_they_are_held() -> None:
    with pytest.raises(OutputTooLarge):
        evaluate(
            logits(2, 1000),
            built("perturb_max"),
            outputs=["jacobian"],
            derivatives=Derivatives("factors"),
            output_limit=100_000,
        )


@pytest.mark.parametrize("form", ["jvp", "vjp"])
@pytest.mark.parametrize("shape", [None, (2, 4), (3, 5), (2,), (1, 5), (2, 5, 1)])
def test_a_vector_of_another_shape_is_refused(form: Form, shape: tuple[int, ...] | None) -> None:
    vector = None if shape is None else torch.zeros(shape)
    with pytest.raises(InvalidParameter, match=f"{form}.*2 rows × 5 classes") as caught:
        jacobian(logits(2, 5), built("softmax"), form, vector)
    assert caught.value.problems[0].loc == ("jacobian", "vector")


# Nothing from autograd


def test_logits_that_require_a_gradient_are_just_logits() -> None:
    values = logits(2, 5).requires_grad_()
    for case in DEFAULTS:
        mapping = case.mapping(5)
        for form in FORMS:
            found = jacobian(values, mapping, form, logits(2, 5, seed=1))
            wanted = jacobian(values.detach(), mapping, form, logits(2, 5, seed=1))
            for name in ("matrix", "product", "diagonal", "left", "right"):
                part = getattr(found, name)
                if part is not None:
                    assert not part.requires_grad
                    assert torch.equal(part, getattr(wanted, name))
        assert not gradients(values, mapping)["temperature"].requires_grad
    assert values.grad is None


def test_no_module_of_the_mathematics_mentions_autograd() -> None:
    words = {"autograd", "backward", "grad", "requires_grad", "requires_grad_", "enable_grad"}
    words |= {"vmap", "functorch", "jacrev", "jacfwd", "func"}
    for path in Path(answer_module.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = getattr(node, "attr", None) or getattr(node, "id", None)
            assert name not in words, f"{path.name} line {getattr(node, 'lineno', 0)}: {name}"
            if isinstance(node, ast.ImportFrom | ast.Import):
                imported = ast.unparse(node)
                assert "autograd" not in imported
                assert "torch.func" not in imported
