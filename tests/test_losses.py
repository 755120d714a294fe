"""Losses and their gradients: closed forms, the reference, differences, Fenchel–Young."""

import math
from collections.abc import Sequence
from typing import Any, get_args

import mpmath as mp
import pytest
import torch
from torch import Tensor

import reference
from answers import present
from cases import CASES, DEFAULTS, Case, built, logits, spread
from differences import assert_slopes, slopes
from mappings.base import Mapping
from mappings.errors import InvalidParameter
from mappings.evaluate import InvalidRows, evaluate
from mappings.evaluation import Evaluation
from mappings.losses import Kind, Targets
from mappings.parameters import joined
from mappings.processor import Processor
from processor_cases import chain

KINDS: tuple[Kind, ...] = get_args(Kind)
FENCHEL_YOUNG = ("softmax", "sparse_softmax", "sparsemax", "entmax")
"""Mappings whose natural loss is finite whatever the target; the others have −log p."""
FROZEN = [c for c in CASES if c.parameters.get("temperature") in (0, 1e-30)]

each_case = pytest.mark.parametrize("case", CASES, ids=str)
each_default = pytest.mark.parametrize("case", DEFAULTS, ids=str)
each_kind = pytest.mark.parametrize("kind", KINDS)


def lost(
    values: Tensor,
    mapping: Mapping,
    targets: Tensor | Sequence[int],
    kind: Kind = "natural",
    processors: Sequence[Processor] = (),
    invalid_rows: InvalidRows = "reject",
) -> Evaluation:
    if not isinstance(targets, Tensor):
        targets = torch.tensor(targets)
    return evaluate(
        values,
        mapping,
        processors=processors,
        outputs=["loss", "gradient", "probabilities", "log_probabilities"],
        targets=Targets(targets, kind),
        invalid_rows=invalid_rows,
    )


def loss_of(row: Sequence[float], request: Any, target: int | list[float], **named: Any) -> float:
    values = torch.tensor([row], dtype=torch.float64)
    given = torch.tensor([target], dtype=None if isinstance(target, int) else torch.float64)
    return float(present(lost(values, built(request), given, **named).loss))


def rows_of(case: Case, classes: int, seed: int = 0) -> Tensor:
    """Three rows: plain, masked, plain."""
    values = spread(case, 0.9 * logits(3, classes, seed))
    if classes > 3:
        values[1, 2] = -math.inf
    return values


# Closed forms


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_the_loss_of_softmax_is_the_cross_entropy(temperature: float) -> None:
    values = 3 * logits(4, 9)
    values[1, 3] = -math.inf
    targets = torch.tensor([0, 8, 2, 4])
    found = lost(values, built({"name": "softmax", "temperature": temperature}), targets)
    wanted = torch.nn.functional.cross_entropy(values / temperature, targets, reduction="none")
    assert float((present(found.loss) - wanted).abs().max()) <= 1e-14
    one_hot = torch.nn.functional.one_hot(targets, 9)
    gradient = (torch.softmax(values / temperature, -1) - one_hot) / temperature
    assert float((present(found.gradient) - gradient).abs().max()) <= 1e-15


def test_the_loss_of_softmax_keeps_its_digits_near_zero() -> None:
    assert loss_of([40.0, 0.0], "softmax", 0) == pytest.approx(math.exp(-40), rel=1e-14)
    assert loss_of([1000.0, 0.0], "softmax", 1) == 1000.0


def test_the_loss_of_sparse_softmax_is_over_what_is_kept() -> None:
    row, request = [1.0, 3.0, 2.0, 0.0], {"name": "sparse_softmax", "k": 2, "temperature": 0.5}
    total = math.log(math.exp(6) + math.exp(4))
    assert loss_of(row, request, 1) == pytest.approx(total - 6, abs=1e-14)
    assert loss_of(row, request, 2) == pytest.approx(total - 4, abs=1e-14)
    # A class outside has a finite loss, too.
    assert loss_of(row, request, 3) == pytest.approx(total - 0, abs=1e-14)
    found = lost(torch.tensor([row], dtype=torch.float64), built(request), [3])
    p = present(found.probabilities)[0]
    assert present(found.gradient)[0].tolist() == [0, 2 * p[1], 2 * p[2], -2]


@pytest.mark.parametrize("gap", [-3.0, -1.0, -0.5, 0.0, 0.25, 0.999, 1.0, 1.5, 1e6])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
def test_the_loss_of_sparsemax_of_two_classes_is_huber_like(gap: float, temperature: float) -> None:
    wanted = 0.0 if gap >= 1 else -gap if gap <= -1 else (gap - 1) ** 2 / 4
    row = [gap * temperature + 3, 3.0]
    request = {"name": "sparsemax", "temperature": temperature}
    assert loss_of(row, request, 0) == pytest.approx(wanted, abs=1e-14)
    assert loss_of(row[::-1], request, 1) == pytest.approx(wanted, abs=1e-14)
    same = {"name": "entmax", "alpha": 2, "temperature": temperature}
    assert loss_of(row, same, 0) == pytest.approx(wanted, abs=1e-14)


def test_the_loss_of_sparsemax_is_the_published_one() -> None:
    # ½ Σ_S (z_i² − τ²) + ½ − z_t, Martins and Astudillo 2016.
    values = 1.5 * logits(6, 7)
    found = evaluate(values, built("sparsemax"), outputs=["probabilities", "normalizer"])
    inside = present(found.probabilities) > 0
    threshold = present(found.normalizer).unsqueeze(-1)
    terms = torch.where(inside, values.square() - threshold.square(), 0).sum(-1) / 2
    for target in range(7):
        wanted = terms + 0.5 - values[:, target]
        got = present(lost(values, built("sparsemax"), [target] * 6).loss)
        assert float((got - wanted).abs().max()) <= 1e-14


@pytest.mark.parametrize("alpha", [0.25, 0.5, 1, 1 + 1e-7, 1.0001, 1.5, 2, 2.5, 4, 16])
@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_the_loss_of_entmax_agrees_with_the_reference(alpha: float, temperature: float) -> None:
    request = {"name": "entmax", "alpha": alpha, "temperature": temperature}
    for row in (2 * logits(1, 6, seed=2)).tolist():
        p = reference.distribution(request, row).probabilities
        with mp.workdps(reference.DIGITS):
            a = mp.mpf(alpha) if abs(alpha - 1) > 2e-6 else mp.mpf(1)
            z = [mp.mpf(x) / mp.mpf(temperature) for x in row]
            if a == 1:
                conjugate = max(z) + mp.log(mp.fsum(mp.exp(value - max(z)) for value in z))
            else:
                held = mp.fsum(q * value for q, value in zip(p, z, strict=True))
                conjugate = held + (1 - mp.fsum(q**a for q in p if q > 0)) / (a * (a - 1))
            wanted = [float(conjugate - value) for value in z]
        for target, exact in enumerate(wanted):
            bound = 1e-6 if a == 1 != alpha else 1e-13
            assert loss_of(row, request, target) == pytest.approx(exact, abs=bound, rel=1e-14)


def test_the_loss_of_entmax_is_continuous_in_alpha() -> None:
    row = [0.5, 1.5, -1.0, 0.25]
    softmax, sparsemax = loss_of(row, "softmax", 2), loss_of(row, "sparsemax", 2)
    for step in (0, 1e-7, -1e-7, 2e-6, -2e-6):
        assert loss_of(row, {"name": "entmax", "alpha": 1 + step}, 2) == pytest.approx(
            softmax, abs=1e-5
        )
        assert loss_of(row, {"name": "entmax", "alpha": 2 + step}, 2) == pytest.approx(
            sparsemax, abs=1e-5
        )


OTHERS = [c for c in CASES if c.name not in FENCHEL_YOUNG and c not in FROZEN]


@pytest.mark.parametrize("case", OTHERS, ids=str)
def test_other_losses_are_minus_the_log_probability(case: Case) -> None:
    values = rows_of(case, 6)
    for target in range(6):
        found = lost(values, case.mapping(6), [target] * 3)
        logs = present(found.log_probabilities)[:, target]
        assert present(found.loss).tolist() == pytest.approx((-logs).tolist(), abs=1e-14)


def test_the_margin_loss_is_of_the_moved_cosine() -> None:
    row = [0.75, 0.25, -0.5]
    for kind, moved in (
        ("additive_cosine", 0.75 - 0.35),
        ("additive_angle", math.cos(math.acos(0.75) + 0.35)),
    ):
        request = {"name": "margin_softmax", "target": 0, "kind": kind, "temperature": 0.1}
        total = sum(math.exp(10 * x) for x in (moved, 0.25, -0.5))
        assert loss_of(row, request, 0) == pytest.approx(math.log(total) - 10 * moved, abs=1e-13)


@each_case
def test_the_accuracy_loss_is_minus_the_probability(case: Case) -> None:
    values = rows_of(case, 6)
    for target in range(6):
        found = lost(values, case.mapping(6), [target] * 3, "accuracy")
        wanted = -present(found.probabilities)[:, target]
        assert torch.equal(present(found.loss), wanted)


@each_case
def test_the_stop_gradient_loss_holds_the_probabilities_still(case: Case) -> None:
    values = rows_of(case, 6)
    found = lost(values, case.mapping(6), [0, 3, 5], "stop_gradient")
    excess = present(found.probabilities) - torch.eye(6, dtype=torch.float64)[[0, 3, 5]]
    assert torch.equal(present(found.gradient), excess)
    products = torch.where(excess == 0, 0, excess * values).sum(-1)
    assert present(found.loss).tolist() == pytest.approx(products.tolist(), abs=1e-13)


def test_the_stop_gradient_loss_goes_through_the_chain() -> None:
    values = 2 * logits(2, 5)
    steps = chain({"name": "temperature", "value": 0.5}, {"name": "top_k", "k": 3})
    found = lost(values, built("softmax"), [int(values[0].argmax())] * 2, "stop_gradient", steps)
    p = present(found.probabilities)
    target = torch.eye(5, dtype=torch.float64)[[int(values[0].argmax())] * 2]
    inside = p > 0
    wanted = torch.where(inside, (p - target) * 2, 0)
    assert float((present(found.gradient)[inside] - wanted[inside]).abs().max()) <= 1e-15


# Fenchel–Young


def tsallis(p: Tensor, alpha: float) -> Tensor:
    """The entropy that entmax maximizes; Shannon's at 1."""
    if alpha == 1:
        shannon: Tensor = -torch.special.xlogy(p, p).sum(-1)
        return shannon
    powers: Tensor = torch.where(p > 0, p**alpha, 0).sum(-1)
    return (1 - powers) / (alpha * (alpha - 1))


YOUNG: list[tuple[dict[str, Any], float]] = [
    ({"name": "softmax"}, 1),
    ({"name": "softmax", "temperature": 0.3}, 1),
    ({"name": "sparsemax"}, 2),
    ({"name": "sparsemax", "temperature": 2.0}, 2),
    *(({"name": "entmax", "alpha": alpha, "temperature": t}, alpha)
      for alpha in (0.5, 1, 1.25, 1.5, 2, 3) for t in (0.5, 2.0)),
]  # fmt: skip
each_young = pytest.mark.parametrize(("request_", "alpha"), YOUNG)


@each_young
def test_the_loss_exceeds_the_targets_entropy_by_nothing_only_where_they_agree(
    request_: dict[str, Any], alpha: float
) -> None:
    values = 2 * logits(5, 6, seed=1)
    p = present(evaluate(values, built(request_)).probabilities)
    own = present(lost(values, built(request_), p).loss)
    assert float((own - tsallis(p, alpha)).abs().max()) <= 1e-13
    for other in (p.flip(0), torch.full_like(p, 1 / 6), torch.eye(6, dtype=torch.float64)[:5]):
        excess = present(lost(values, built(request_), other).loss) - tsallis(other, alpha)
        apart = (other - p).abs().amax(-1) > 1e-6
        assert bool((excess[apart] > 1e-14).all())
        assert bool((excess > -1e-13).all())


@each_young
def test_the_loss_of_a_class_is_zero_only_where_it_has_all_the_mass(
    request_: dict[str, Any], alpha: float
) -> None:
    values = torch.cat([2 * logits(20, 4, seed=5), 40 * logits(5, 4)])
    for target in range(4):
        found = lost(values, built(request_), [target] * 25)
        alone = present(found.probabilities)[:, target] == 1
        assert bool((present(found.loss) >= 0).all())
        assert bool((present(found.loss)[alone] <= 1e-14).all())
        few = present(found.probabilities)[:, target] < 0.999
        assert bool((present(found.loss)[few] > 1e-8).all())


# Gradients against differences


def assert_gradient(
    row: Tensor,
    mapping: Mapping,
    target: Tensor,
    kind: Kind,
    processors: Sequence[Processor] = (),
) -> None:
    """The gradient of one row is what central differences of its loss give."""
    found = lost(row.unsqueeze(0), mapping, target.unsqueeze(0), kind, processors)
    gradient = present(found.gradient)[0]
    unmasked = (row > -math.inf).nonzero().flatten()
    directions = torch.eye(row.numel(), dtype=torch.float64)[unmasked]

    def losses(points: Tensor) -> Tensor:
        targets = target.expand(points.shape[0], *target.shape)
        return present(lost(points, mapping, targets, kind, processors).loss).unsqueeze(-1)

    assert bool(present(found.loss).isfinite().all())
    assert_slopes(gradient[unmasked].unsqueeze(-1), slopes(losses, row, directions))
    assert not bool(gradient[row == -math.inf].any())


def targets_of(case: Case, row: Tensor, kind: Kind) -> list[Tensor]:
    """Targets with a finite loss: two class ids and two distributions."""
    p = present(evaluate(row.unsqueeze(0), case.mapping(row.numel())).probabilities)[0]
    best, second = p.topk(2).indices
    if case.name in FENCHEL_YOUNG or kind == "accuracy" or float(p[second]) > 1e-3:
        other = second
    else:
        other = best
    shared = torch.zeros_like(p).index_put((torch.stack([best, other]),), p.new_tensor(0.5), True)
    return [best, other, shared, p / p.sum()]


MOVING = [c for c in CASES if c not in FROZEN and not c.parameters.get("hard")]


@pytest.mark.parametrize("case", MOVING, ids=str)
@pytest.mark.parametrize("kind", ["natural", "accuracy"])
def test_the_gradient_agrees_with_differences(case: Case, kind: Kind) -> None:
    # Each loss of perturb_max costs 128 times what the others do.
    values = rows_of(case, 6, seed=3)[1 : 2 if case.name == "perturb_max" else 3]
    for place, row in enumerate(values):
        for target in targets_of(case, row, kind)[1 - place :: 2]:
            assert_gradient(row, case.mapping(6), target, kind)


@each_default
@pytest.mark.parametrize("kind", ["natural", "accuracy"])
def test_the_gradient_goes_through_processors(case: Case, kind: Kind) -> None:
    steps = chain(
        {"name": "repetition_penalty", "penalty": 1.25, "ids": [0, 2]},
        {"name": "bias", "ids": [3], "values": [0.125]},
        {"name": "temperature", "value": 1.5},
        {"name": "top_k", "k": 4},
    )
    values = 0.7 * rows_of(case, 6, seed=4)
    values[:, 0] = 1.2 * values.amax(-1) if case.name != "margin_softmax" else 0.7
    request = case.request(6)
    if "weights" in request:
        request["weights"] = [0.5 + weight for weight in request["weights"]]
    for row in values:
        p = present(evaluate(row.unsqueeze(0), built(request), processors=steps).probabilities)[0]
        for target in (p.argmax(), p / p.sum()):
            assert_gradient(row, built(request), target, kind, steps)


@each_default
@each_kind
def test_a_masked_class_has_no_gradient_wherever_it_stands(case: Case, kind: Kind) -> None:
    values = rows_of(case, 5, seed=6)[0]
    for place in range(1, 5):
        row = values.clone()
        row[place] = -math.inf
        found = lost(row.unsqueeze(0), case.mapping(5), [0], kind)
        p = present(found.probabilities)[0]
        if float(p[0]) > 0 or kind != "natural":
            gradient = present(found.gradient)[0]
            assert bool(gradient.isfinite().all())
            assert float(gradient[place]) == 0.0


@each_default
@each_kind
def test_class_ids_are_one_hot_distributions(case: Case, kind: Kind) -> None:
    values = rows_of(case, 6, seed=2)
    for ids in ([0, 1, 5], [3, 3, 3]):
        by_id = lost(values, case.mapping(6), ids, kind)
        by_distribution = lost(values, case.mapping(6), torch.eye(6)[ids], kind)
        for first, second in (
            (by_id.loss, by_distribution.loss),
            (by_id.gradient, by_distribution.gradient),
        ):
            assert torch.allclose(present(first), present(second), 0, 0, equal_nan=True)


# Infinite losses


ZEROS = [
    ({"name": "t_softmax"}, [0.0, 3.0, 2.5]),
    ({"name": "r_softmax"}, [0.0, 3.0, 2.5]),
    ({"name": "sparsegen"}, [0.0, 3.0, 2.5]),
    ({"name": "sparsehourglass"}, [-4.0, 3.0, 2.5]),
    ({"name": "perturb_max", "noise": "uniform"}, [0.0, 3.0, 2.5]),
    ({"name": "weighted_softmax", "weights": [0, 1, 1]}, [0.0, 3.0, 2.5]),
    ({"name": "spherical_softmax"}, [0.0, 3.0, 2.5]),
    ({"name": "gumbel_softmax", "seed": 1, "temperature": 0}, [-40.0, 3.0, 2.5]),
]


@pytest.mark.parametrize(("request_", "row"), ZEROS, ids=lambda part: str(part)[:40])
def test_a_target_without_probability_costs_infinitely_much(
    request_: dict[str, Any], row: list[float]
) -> None:
    assert loss_of(row, request_, 0) == math.inf
    assert loss_of(row, request_, [0.25, 0.75, 0.0]) == math.inf
    assert loss_of(row, request_, 0, kind="accuracy") == 0
    # A distribution that leaves it out is finite, and so are the other rows.
    assert loss_of(row, request_, [0.0, 1.0, 0.0]) < math.inf
    values = torch.tensor([row, row], dtype=torch.float64)
    found = lost(values, built(request_), [0, 1])
    assert present(found.loss)[0] == math.inf > present(found.loss)[1]
    assert bool(present(found.gradient)[1].isfinite().all())


@each_default
def test_a_masked_target_costs_infinitely_much(case: Case) -> None:
    values = rows_of(case, 5)
    values[:, 2] = -math.inf
    found = lost(values, case.mapping(5), [2, 0, 2])
    assert [float(x) == math.inf for x in present(found.loss)][::2] == [True, True]
    steps = chain({"name": "ban", "ids": [2]})
    banned = lost(rows_of(case, 5), case.mapping(5), [2, 0, 2], "natural", steps)
    assert [float(x) == math.inf for x in present(banned.loss)][::2] == [True, True]


@each_default
@each_kind
def test_nothing_is_nan_but_the_gradient_of_an_infinite_loss(case: Case, kind: Kind) -> None:
    values = rows_of(case, 6)
    for target in range(6):
        found = lost(values, case.mapping(6), [target] * 3, kind)
        assert not bool(present(found.loss).isnan().any())
        finite = present(found.loss) < math.inf
        assert bool(present(found.gradient)[finite].isfinite().all())


# Shifts, batches, types, bad rows


@pytest.mark.parametrize("case", [c for c in DEFAULTS if c.name in FENCHEL_YOUNG], ids=str)
@pytest.mark.parametrize("shift", [2.0**20, -(2.0**20)])
def test_adding_a_constant_changes_no_loss(case: Case, shift: float) -> None:
    values = (rows_of(case, 6) * 2**20).round() / 2**20
    for target in range(2):
        one, two = (
            present(lost(v, case.mapping(6), [target] * 3).loss) for v in (values, values + shift)
        )
        assert float((one - two).abs().max()) <= 1e-13


@each_case
@each_kind
def test_a_loss_has_the_same_bits_in_any_batch(case: Case, kind: Kind) -> None:
    classes = 40 if case.name == "perturb_max" else 300
    mapping = case.mapping(classes)
    mates = [c.mapping(classes) for c in CASES if c.name == case.name]
    mates = [mate for mate in mates if mate.batch_key() == mapping.batch_key()]
    values = spread(case, logits(9, classes, seed=9)).float()
    values[2] = 0.5
    values[7, : classes // 2] = -math.inf
    values[7, 0] = 0.25
    targets = torch.tensor([0, classes - 1, 5, 3, 1, 2, 7, classes - 1, 0])
    parts = [mates[row % len(mates)] for row in range(9)]
    batch = joined([(part, 1) for part in parts])
    assert isinstance(batch, Mapping)
    together = lost(values, batch, targets, kind)
    for row in (0, 7):
        alone = lost(values[row : row + 1], parts[row], targets[row : row + 1], kind)
        for whole, part in ((together.loss, alone.loss), (together.gradient, alone.gradient)):
            bits = [
                present(x)[i].contiguous().view(torch.int32) for x, i in ((whole, row), (part, 0))
            ]
            assert torch.equal(bits[0], bits[1])


@each_default
@each_kind
def test_a_bad_row_has_no_loss_and_leaves_the_others_theirs(case: Case, kind: Kind) -> None:
    values = rows_of(case, 5)
    wanted = lost(values[[0, 2]], case.mapping(5), [0, 3], kind)
    values[1, 4] = math.nan
    found = lost(values, case.mapping(5), [0, 1, 3], kind, invalid_rows="report")
    assert math.isnan(float(present(found.loss)[1]))
    assert bool(present(found.gradient)[1].isnan().all())
    for whole, part in ((found.loss, wanted.loss), (found.gradient, wanted.gradient)):
        assert torch.allclose(present(whole)[[0, 2]], present(part), 0, 0, equal_nan=True)


@each_default
def test_narrow_logits_have_the_loss_of_their_values(case: Case) -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        values = rows_of(case, 6).to(dtype)
        found = lost(values, case.mapping(6), [0, 1, 3])
        wanted = present(lost(values.double(), case.mapping(6), [0, 1, 3]).loss)
        assert present(found.loss).dtype == torch.float32
        assert present(found.loss).tolist() == pytest.approx(wanted.tolist(), rel=1e-6, abs=1e-6)


def test_an_empty_batch_has_no_losses() -> None:
    for case in DEFAULTS:
        nothing = torch.empty(0, 4, dtype=torch.float64)
        found = lost(nothing, case.mapping(4), torch.empty(0, dtype=torch.int64))
        assert present(found.loss).shape == (0,)
        assert present(found.gradient).shape == (0, 4)


# What is refused


@pytest.mark.parametrize("target", [3, -1, 1 << 40])
def test_a_target_that_is_no_class_is_named(target: int) -> None:
    with pytest.raises(InvalidParameter, match=f"row 1: target {target} .* 3 classes") as caught:
        lost(logits(2, 3), built("softmax"), [0, target])
    assert caught.value.problems[0].loc == ("targets", 1)


def test_a_target_past_a_shorter_row_is_named() -> None:
    values = logits(2, 5)
    values[1, 3:] = -math.inf
    with pytest.raises(InvalidParameter, match="row 1: target 3 is not one of the 3 classes"):
        evaluate(
            values,
            built("softmax"),
            outputs=["loss"],
            lengths=[5, 3],
            targets=Targets(torch.tensor([4, 3])),
        )


@pytest.mark.parametrize("count", [0, 1, 3])
def test_targets_for_another_number_of_rows_are_refused(count: int) -> None:
    for targets in (torch.zeros(count, dtype=torch.int64), torch.full((count, 4), 0.25)):
        with pytest.raises(InvalidParameter, match=f"{count} targets for 2 rows"):
            lost(logits(2, 4), built("softmax"), targets)


@pytest.mark.parametrize("width", [1, 3, 5])
def test_distributions_of_another_width_are_refused(width: int) -> None:
    with pytest.raises(InvalidParameter, match="target"):
        lost(logits(2, 4), built("softmax"), torch.full((2, width), 1 / width))


@pytest.mark.parametrize(
    "bad",
    [
        [0.5, 0.5, 0.5],
        [0.25, 0.25, 0.25],
        [1.5, -0.5, 0.0],
        [math.nan, 0.5, 0.5],
        [math.inf, 0.0, 0.0],
        [0.0, 0.0, 0.0],
    ],
    ids=str,
)
def test_what_is_no_distribution_is_refused(bad: list[float]) -> None:
    targets = torch.tensor([[0.5, 0.25, 0.25], bad], dtype=torch.float64)
    with pytest.raises(InvalidParameter, match="row 1 must be at least 0 and sum to 1") as caught:
        lost(logits(2, 3), built("softmax"), targets)
    assert caught.value.problems[0].loc == ("targets", 1)
