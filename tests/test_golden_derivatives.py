"""The golden rows with processors, Jacobians and losses hold, in-process in float64."""

import math
from typing import Any

import torch
from torch import Tensor

from cases import built
from golden_rows import ROWS, each, printed
from mappings.evaluate import evaluate
from mappings.losses import Targets
from mappings.processor import Processor
from mappings.registry import PROCESSORS
from mappings.wanted import Derivatives

Golden = dict[str, Any]

CHAINED = [row for row in ROWS if "processors" in row]


def double(row: Golden) -> Tensor:
    logits = [-math.inf if value is None else value for value in row["logits"]]
    return torch.tensor([logits], dtype=torch.float64)


def chain(row: Golden) -> list[Processor]:
    return [PROCESSORS[step["name"]](**step) for step in row.get("processors", [])]


def test_the_golden_rows_hold_chains_jacobians_and_losses() -> None:
    assert len(CHAINED) == 100
    assert sum("jacobian" in row for row in ROWS) == 36
    assert sum("loss" in row for row in ROWS) == 24


@each(CHAINED)
def test_probabilities_after_processors_agree(row: Golden) -> None:
    found = evaluate(double(row), built(row["mapping"]), processors=chain(row)).probabilities
    assert found is not None
    wanted = torch.tensor([row["probabilities"]], dtype=torch.float64)
    assert float((found - wanted).abs().max()) <= 1e-12 + printed(row)
    assert torch.equal(found > 0, wanted > 0)


@each(CHAINED)
def test_the_support_after_processors_agrees(row: Golden) -> None:
    found = evaluate(
        double(row), built(row["mapping"]), processors=chain(row), outputs=["support"]
    ).support
    assert found is not None
    assert sorted(found.indices.tolist()) == sorted(row["support"])
    masses = row["probabilities"]
    order = sorted(row["support"], key=lambda index: (-masses[index], index))
    assert found.indices.tolist() == order


@each([row for row in CHAINED if torch.equal(double(row).float().double(), double(row))])
def test_the_support_of_float32_logits_after_processors_agrees(row: Golden) -> None:
    found = evaluate(
        double(row).float(), built(row["mapping"]), processors=chain(row), outputs=["support"]
    )
    assert found.support is not None
    assert sorted(found.support.indices.tolist()) == sorted(row["support"])


@each(ROWS, "jacobian")
def test_the_jacobian_agrees(row: Golden) -> None:
    found = evaluate(
        double(row),
        built(row["mapping"]),
        processors=chain(row),
        outputs=["jacobian"],
        derivatives=Derivatives("dense"),
    ).jacobian
    assert found is not None
    assert found.matrix is not None
    bound = 1e-8 if row["mapping"]["name"] == "perturb_max" else 1e-9
    wanted = torch.tensor([row["jacobian"]], dtype=torch.float64)
    assert float((found.matrix - wanted).abs().max()) <= bound


@each(ROWS, "loss")
def test_the_loss_agrees(row: Golden) -> None:
    found = evaluate(
        double(row),
        built(row["mapping"]),
        outputs=["loss"],
        targets=Targets(torch.tensor([row["loss"]["target"]])),
    ).loss
    assert found is not None
    # Losses of a million nats are printed with 16 digits.
    wanted = row["loss"]["value"]
    assert abs(float(found) - wanted) <= 1e-10 + 1e-15 * abs(wanted)
