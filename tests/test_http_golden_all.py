"""Every golden row holds through a running server: processors, Jacobians in each form, losses.

Rows that a mapping alone answers are in test_golden.
"""

from itertools import groupby
from typing import Any

import numpy as np
import pytest

from golden_rows import ROWS, each
from server import post

Golden = dict[str, Any]

PROCESSED = [row for row in ROWS if "processors" in row]
SLOPED = [row for row in ROWS if "jacobian" in row]


def ask(path: str, row: Golden, **fields: Any) -> dict[str, Any]:
    chain = {"processors": row["processors"]} if "processors" in row else {}
    body = {"logits": row["logits"], "mapping": row["mapping"], **chain, **fields}
    response = post(path, body)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def assert_close(got: Any, wanted: Any, absolute: float) -> None:
    found, exact = np.array(got), np.array(wanted)
    assert found.shape == exact.shape
    assert np.abs(found - exact).max() <= absolute


def accuracy(row: Golden) -> float:
    """How close a Jacobian must be: perturb_max is an integral."""
    return 1e-8 if row["mapping"]["name"] == "perturb_max" else 1e-9


@each(PROCESSED)
def test_the_processors_keep_the_golden_support(row: Golden) -> None:
    got = ask("/v1/map", row, outputs=["probabilities", "support", "support_size"])
    assert_close(got["probabilities"][0], row["probabilities"], 1e-12)
    assert sorted(got["support"][0]["indices"]) == sorted(row["support"])
    assert got["support_size"] == [len(row["support"])]


def chain_of(row: Golden) -> str:
    """What rows of one request must agree on: the processors, and their choices."""
    alike = [(step["name"], step.get("ties")) for step in row["processors"]]
    return repr((row["mapping"], alike))


CHAINS = [list(rows) for _, rows in groupby(sorted(PROCESSED, key=chain_of), key=chain_of)]


@pytest.mark.parametrize("rows", CHAINS, ids=[chain_of(rows[0]) for rows in CHAINS])
def test_golden_rows_of_one_chain_are_answered_alike_in_one_batch(rows: list[Golden]) -> None:
    """Rows of different lengths, each with its own parameters of every processor."""
    steps = zip(*(row["processors"] for row in rows), strict=True)
    chain = [
        {
            name: value if name in ("name", "ties") else [step[name] for step in same]
            for name, value in same[0].items()
        }
        for same in steps
    ]
    whole = {"mapping": rows[0]["mapping"], "processors": chain}
    got = ask("/v1/map", {"logits": [row["logits"] for row in rows], **whole})
    for row, probabilities in zip(rows, got["probabilities"], strict=True):
        assert probabilities == ask("/v1/map", row)["probabilities"][0]


@each(SLOPED)
def test_every_form_of_the_jacobian_is_the_golden_one(row: Golden) -> None:
    exact = np.array(row["jacobian"])
    classes = len(exact)

    def jacobian(**asked: Any) -> Any:
        return ask("/v1/map", row, outputs=["jacobian"], jacobian=asked)["jacobian"]

    assert_close(jacobian(form="dense")[0], exact, accuracy(row))
    block = jacobian(form="support")[0]
    listed = np.array(block["indices"])
    assert_close(block["values"], exact[np.ix_(listed, listed)], accuracy(row))
    factors = {name: np.array(part[0]) for name, part in jacobian(form="factors").items()}
    assert factors["left"].shape == factors["right"].shape
    whole = np.diag(factors["diagonal"]) - factors["left"] @ factors["right"].T
    assert_close(whole, exact, accuracy(row))
    vector = np.cos(np.arange(classes))
    for form, product in (("jvp", exact @ vector), ("vjp", exact.T @ vector)):
        got = jacobian(form=form, vector=vector.tolist())[0]
        assert_close(got, product, accuracy(row) * classes)


@each(ROWS, "loss")
def test_the_loss_is_the_golden_one_for_a_class_id_and_its_distribution(row: Golden) -> None:
    target, value = row["loss"]["target"], row["loss"]["value"]
    one_hot = [float(place == target) for place in range(len(row["logits"]))]
    for targets in ([target], target, one_hot, [one_hot]):
        got = ask("/v1/loss", row, targets=targets, outputs=["loss"])
        assert abs(got["loss"][0] - value) <= 1e-10 * max(1, abs(value))
