"""perturb_max against closed forms for 2 classes and plain quadrature in numpy for many."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.polynomial.legendre import leggauss
from numpy.typing import NDArray
from scipy import special

from answers import probabilities
from cases import built

Array = NDArray[np.float64]
DIFFERENCES = [0.0, 1e-3, 0.5, 1.0, 2.0, 5.0, 9.0]


def chance(noise: str, difference: float) -> float:
    """P[ε₂ − ε₁ < d]: the chance of a class that is d above the only other one."""
    d = difference
    if noise == "normal":
        return float(special.ndtr(d / np.sqrt(2)))
    if noise == "gumbel":
        return float(special.expit(d))
    if noise == "uniform":
        return 1 - max(1 - d, 0) ** 2 / 2
    if noise == "exponential":
        return float(1 - np.exp(-d) / 2)
    if d < 0.01:
        # The closed form cancels: its series about 0 to 1e-16.
        return 0.5 + d / 6 - d**3 / 180
    return float(np.exp(d) * (np.expm1(d) - d) / np.expm1(d) ** 2)


NOISES = ("normal", "gumbel", "logistic", "uniform", "exponential")


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("difference", DIFFERENCES)
def test_two_classes_have_the_closed_form(noise: str, difference: float) -> None:
    mapping = built({"name": "perturb_max", "noise": noise})
    found = probabilities([[difference, 0.0], [-7.0, difference - 7.0]], mapping)
    wanted = chance(noise, difference)
    # difference − 7 is rounded to 1e-15.
    assert found[0].tolist() == pytest.approx([wanted, 1 - wanted], abs=1e-12, rel=0)
    assert found[1].tolist() == pytest.approx([1 - wanted, wanted], abs=1e-12, rel=0)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("classes", [1, 2, 3, 10, 1000])
def test_equal_logits_share_the_mass(noise: str, classes: int) -> None:
    mapping = built({"name": "perturb_max", "noise": noise})
    found = probabilities([[3.25] * classes], mapping)
    assert found[0].tolist() == pytest.approx([1 / classes] * classes, abs=1e-12, rel=0)


def panels(edges: Array, degree: int) -> tuple[Array, Array]:
    """Nodes and weights of Gauss–Legendre quadrature between all edges."""
    nodes, weights = leggauss(degree)
    halves = np.diff(edges)[:, None] / 2
    middles = (edges[:-1] + edges[1:])[:, None] / 2
    return (middles + halves * nodes).ravel(), (halves * weights).ravel()


def edges_of(noise: str, z: Array) -> Array:
    top = z.max()
    if noise == "uniform":
        return np.unique(np.concatenate([[top], (z + 1)[z + 1 > top]]))
    if noise == "exponential":
        return np.linspace(top, top + 60, 241)
    reach = 12 if noise == "normal" else 60
    return np.linspace(top - reach, top + reach, 16 * reach + 1)


LOG_DENSITIES: dict[str, Callable[[Array], Array]] = {
    "normal": lambda y: -(y**2) / 2 - np.log(2 * np.pi) / 2,
    "logistic": lambda y: special.log_expit(y) + special.log_expit(-y),
    "uniform": lambda y: np.where((y >= 0) & (y <= 1), 0.0, -np.inf),
    "exponential": lambda y: np.where(y >= 0, -y, -np.inf),
}

LOG_CUMULATIVES: dict[str, Callable[[Array], Array]] = {
    "normal": special.log_ndtr,
    "logistic": special.log_expit,
    "uniform": lambda y: np.log(np.clip(y, 1e-300, 1)),
    "exponential": lambda y: np.log(-np.expm1(-np.maximum(y, 1e-300))),
}


def integrated(noise: str, z: Array) -> Array:
    """p_i = ∫ f(y − z_i) Π_{j ≠ i} F(y − z_j) dy, class by class."""
    nodes, weights = panels(edges_of(noise, z), 20)
    logs = LOG_CUMULATIVES[noise](nodes[:, None] - z)
    total = logs.sum(1)
    return np.array(
        [
            (weights * np.exp(LOG_DENSITIES[noise](nodes - z[i]) + total - logs[:, i])).sum()
            for i in range(z.size)
        ]
    )


@pytest.mark.parametrize("noise", sorted(LOG_DENSITIES))
@pytest.mark.parametrize(("classes", "width"), [(3, 1.0), (40, 0.3), (40, 3.0), (300, 1.0)])
def test_many_classes_agree_with_plain_quadrature(noise: str, classes: int, width: float) -> None:
    z = np.random.default_rng(classes).normal(0, width, classes)
    mapping = built({"name": "perturb_max", "noise": noise})
    found = probabilities(torch.from_numpy(z).unsqueeze(0), mapping)[0].numpy()
    assert float(np.abs(found - integrated(noise, z)).max()) <= 1e-10


@pytest.mark.parametrize("noise", NOISES)
def test_any_spread_of_logits_sums_to_one(noise: str) -> None:
    mapping = built({"name": "perturb_max", "noise": noise})
    random = np.random.default_rng(0)
    rows = [random.normal(0, 10.0**power, 50) for power in range(-6, 7)]
    rows += [np.r_[[0.0] * 25, [-30.0] * 25], np.r_[[1e6], [0.0] * 49], np.linspace(0, -40, 50)]
    found = probabilities(torch.from_numpy(np.stack(rows)), mapping)
    assert float((found.sum(-1) - 1).abs().max()) <= 1e-10
