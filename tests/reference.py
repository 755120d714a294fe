"""The 15 mappings in mpmath, written from their definitions alone: what the tests believe.

Logits and parameters are taken at their exact binary values. Precision is raised until the
defining equation holds, so that every digit of a double can be compared. Only gumbel_softmax,
which is random, is not here. Slow and plain on purpose: for rows of up to a few hundred classes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath as mp

Number = Any  # mpmath has no types
Row = list[Number]

DIGITS = 60
"""Working precision (decimal digits)."""

MASKED = mp.mpf("-inf")


@dataclass(frozen=True)
class Distribution:
    """One row's exact answer; both (classes,), log_probabilities −inf at exact zeros."""

    probabilities: Row
    log_probabilities: Row

    def entropy(self) -> Number:
        """−Σ p log p, in nats."""
        pairs = zip(self.probabilities, self.log_probabilities, strict=True)
        with mp.workdps(DIGITS):
            return -mp.fsum(p * log for p, log in pairs if p > 0)

    def __getitem__(self, index: int) -> float:
        return float(self.probabilities[index])

    def doubles(self) -> list[float]:
        """The probabilities, each rounded once."""
        return [float(p) for p in self.probabilities]


def distribution(mapping: dict[str, Any], logits: Sequence[float | None]) -> Distribution:
    """The distribution of one row.

    `mapping` is as in a request: a name and scalar parameters (weights: one per class). A
    masked class is None or −inf; it gets 0 and does not count as a class.
    """
    with mp.workdps(DIGITS):
        parameters = {key: _exact(value) for key, value in mapping.items() if key != "name"}
        temperature = parameters.pop("temperature", mp.mpf(1))
        row = [MASKED if x is None else mp.mpf(float(x)) for x in logits]
        ids = [i for i, x in enumerate(row) if x != MASKED]
        x = [row[i] for i in ids]
        if "weights" in parameters:
            parameters["weights"] = [parameters["weights"][i] for i in ids]
        if "target" in parameters:
            target = mapping["target"]
            parameters["target"] = ids.index(target) if target in ids else None
        solve = SOLVERS[mapping["name"]]
        if temperature == 0 and mapping["name"] in AT_ZERO_TEMPERATURE:
            # One part in 10^400 of the smallest gap: the limit itself at this precision.
            gaps = {abs(a - b) for a in x for b in x if a != b}
            temperature = min(gaps, default=mp.mpf(1)) / mp.mpf(10) ** 400
        found = solve(x, temperature, **parameters)
        probabilities, logs = [mp.mpf(0)] * len(row), [MASKED] * len(row)
        for place, p, log in zip(ids, found.probabilities, found.log_probabilities, strict=True):
            tiny = p < mp.mpf(10) ** -300 if mapping.get("temperature") == 0 else False
            probabilities[place] = mp.mpf(0) if tiny else p
            logs[place] = MASKED if tiny else log
        return Distribution(probabilities, logs)


def _exact(value: Any) -> Any:
    if isinstance(value, list):
        return [mp.mpf(float(item)) for item in value]
    return mp.mpf(float(value)) if isinstance(value, int | float) else value


def _gibbs(scores: Row, weights: Row | None = None) -> Distribution:
    """In proportion to w e^score; w of 1 when not given."""
    weights = weights or [mp.mpf(1)] * len(scores)
    top = max(s for s, w in zip(scores, weights, strict=True) if w > 0)
    masses = [
        w * mp.exp(s - top) if w > 0 else mp.mpf(0) for s, w in zip(scores, weights, strict=True)
    ]
    total = mp.fsum(masses)
    logs = []
    for i, mass in enumerate(masses):
        # log p of a class that holds nearly all: through what it does not hold.
        rest = mp.fsum(masses[:i] + masses[i + 1 :])
        if mass == 0 and weights[i] == 0:
            logs.append(MASKED)
        elif rest < mass:
            logs.append(-mp.log1p(rest / mass))
        else:
            logs.append(mp.log(weights[i]) + (scores[i] - top) - mp.log(total))
    return Distribution([mass / total for mass in masses], logs)


def _proportional(masses: Row) -> Distribution:
    total = mp.fsum(masses)
    probabilities = [mass / total for mass in masses]
    return Distribution(probabilities, [mp.log(p) if p > 0 else MASKED for p in probabilities])


def _over(x: Row, temperature: Number) -> Row:
    """(x − max x)/T: exact enough for any temperature, for the shift-invariant ones."""
    top = max(x)
    return [(value - top) / temperature for value in x]


def softmax(x: Row, temperature: Number) -> Distribution:
    return _gibbs(_over(x, temperature))


def weighted_softmax(x: Row, temperature: Number, weights: Row) -> Distribution:
    return _gibbs(_over(x, temperature), weights)


def prefix(order: list[int], masses: Row, keep: int, ties: str) -> list[int]:
    """The first `keep` of `order`; with "all", also everything equal to the last of them."""
    kept = order[:keep]
    if ties == "all":
        kept = [i for i in order if masses[i] >= masses[kept[-1]]]
    return kept


def sparse_softmax(
    x: Row,
    temperature: Number,
    k: Number | None = None,
    p: Number | None = None,
    ties: str = "first",
) -> Distribution:
    order = sorted(range(len(x)), key=lambda i: (-x[i], i))
    kept = order if k is None else prefix(order, x, int(k), ties)
    z = _over(x, temperature)
    if p is not None and p < 1:
        masses = [mp.exp(value) for value in z]
        total = mp.fsum(masses[i] for i in kept)
        keep = 1
        while mp.fsum(masses[i] for i in kept[keep:]) > (1 - p) * (1 + mp.mpf("1e-6")) * total:
            keep += 1
        kept = prefix(kept, masses, keep, ties)
    weights = [mp.mpf(1 if i in kept else 0) for i in range(len(x))]
    return _gibbs(z, weights)


def taylor_softmax(x: Row, temperature: Number, order: Number = 2) -> Distribution:
    z = [value / temperature for value in x]
    return _proportional(
        [mp.fsum(value**j / mp.factorial(j) for j in range(int(order) + 1)) for value in z]
    )


def spherical_softmax(x: Row, temperature: Number, epsilon: Number = 0) -> Distribution:
    return _proportional([(value / temperature) ** 2 + epsilon for value in x])


def normalized(x: Row, temperature: Number, function: str = "sigmoid") -> Distribution:
    functions: dict[str, Callable[[Number], Number]] = {
        "sigmoid": lambda z: 1 / (1 + mp.exp(-z)),
        "softplus": lambda z: mp.log1p(mp.exp(z)) if z < 0 else z + mp.log1p(mp.exp(-z)),
        "square": lambda z: z**2,
    }
    return _proportional([functions[function](value / temperature) for value in x])


def t_softmax(x: Row, temperature: Number, t: Number = 1) -> Distribution:
    z = _over(x, temperature)
    return _gibbs(z, [max(value + t, mp.mpf(0)) for value in z])


def r_softmax(x: Row, temperature: Number, r: Number = 0.5) -> Distribution:
    ranked = sorted(x)
    place = (len(x) - 1) * r
    below = int(mp.floor(place))
    above = min(below + 1, len(x) - 1)
    quantile = ranked[below] + (place - below) * (ranked[above] - ranked[below])
    if quantile == max(x):
        return _proportional([mp.mpf(1 if value == max(x) else 0) for value in x])
    return _gibbs(_over(x, temperature), [max(value - quantile, mp.mpf(0)) for value in x])


def sparsemax(x: Row, temperature: Number) -> Distribution:
    return _project(_over(x, temperature))


def _project(z: Row) -> Distribution:
    """The nearest point of the simplex."""
    held, threshold = mp.mpf(0), mp.mpf(0)
    for count, value in enumerate(sorted(z, reverse=True), start=1):
        held += value
        if value > (held - 1) / count:
            threshold = (held - 1) / count
    return _proportional([max(value - threshold, mp.mpf(0)) for value in z])


def sparsegen(x: Row, temperature: Number, g: str = "linear", lam: Number = 0) -> Distribution:
    if g == "linear":
        return _project([value / (1 - lam) for value in _over(x, temperature)])
    shapes: dict[str, Callable[[Number], Number]] = {"exp": mp.exp, "square": lambda z: z**2}
    shaped = [shapes[g](value / temperature) for value in x]
    return _project(_over(shaped, 1 - lam))


def sparsehourglass(x: Row, temperature: Number, q: Number = 1) -> Distribution:
    z = [value / temperature for value in x]
    scale = (1 + len(z) * q) / (abs(mp.fsum(z)) + len(z) * q)
    return _project([scale * value for value in z])


def entmax(x: Row, temperature: Number, alpha: Number = 1.5) -> Distribution:
    if abs(alpha - 1) <= mp.mpf("1e-6") * (1 + mp.mpf("1e-9")):
        return softmax(x, temperature)
    for digits in (DIGITS, 4 * DIGITS, 32 * DIGITS):
        with mp.workdps(digits):
            masses = _entmax_masses(_over(x, temperature), alpha - 1)
            if abs(mp.fsum(masses) - 1) < mp.mpf(10) ** (30 - DIGITS):
                return Distribution(masses, [mp.log(p) if p > 0 else MASKED for p in masses])
    raise ArithmeticError("the threshold needs more digits than this reference takes")


def _entmax_masses(z: Row, beta: Number) -> Row:
    """p_i = [u + βz_i]₊^{1/β}, by the probability q of the largest: u = q^β, q in [1/n, 1]."""

    def masses(q: Number) -> Row:
        bases = [q**beta + beta * value for value in z]
        return [base ** (1 / beta) if base > 0 else mp.mpf(0) for base in bases]

    low, high = mp.mpf(1) / len(z), mp.mpf(1)
    at_low, at_high = mp.fsum(masses(low)) - 1, mp.fsum(masses(high)) - 1
    if at_low >= 0 or at_high <= 0:
        return masses(low if at_low >= 0 else high)
    small = mp.mpf(10) ** (20 - DIGITS)
    for step in range(20 * mp.mp.dps):
        # Regula falsi with the Illinois weight; every third step halves.
        middle = (low + high) / 2
        if step % 3:
            middle = (low * at_high - high * at_low) / (at_high - at_low)
        value = mp.fsum(masses(middle)) - 1
        if abs(value) < small or not low < middle < high:
            break
        if value < 0:
            low, at_low, at_high = middle, value, at_high / 2
        else:
            high, at_high, at_low = middle, value, at_low / 2
    return masses(middle)


def perturb_max(x: Row, temperature: Number, noise: str = "normal") -> Distribution:
    if noise == "gumbel":
        return softmax(x, temperature)
    z = _over(x, temperature)
    density, cumulative = NOISES[noise]
    masses = []
    with mp.workdps(30):
        for i, winner in enumerate(z):
            others = z[:i] + z[i + 1 :]

            def integrand(y: Number, winner: Number = winner, others: Row = others) -> Number:
                return density(y - winner) * mp.fprod(cumulative(y - other) for other in others)

            masses.append(_integral(integrand, _pieces(noise, winner, z)))
    probabilities = [p if p > mp.mpf(10) ** -25 else mp.mpf(0) for p in masses]
    return Distribution(probabilities, [mp.log(p) if p > 0 else MASKED for p in probabilities])


def _pieces(noise: str, winner: Number, z: Row) -> Row:
    """Where to split the integral: at kinks, and finely enough for Gauss–Legendre."""
    top = max(z)
    if noise == "uniform":
        ends = sorted({value + 1 for value in z if top < value + 1 < winner + 1})
        return [top, *ends, winner + 1] if top < winner + 1 else []
    if noise == "exponential":
        return [top + mp.mpf(step) / 2 for step in range(0, 130)]
    reach = 12 if noise == "normal" else 65
    low, high = max(winner - reach, top - reach), winner + reach
    count = int(mp.ceil(high - low)) if high > low else 0
    return [low + (high - low) * step / count for step in range(count + 1)] if count else []


def _integral(integrand: Callable[[Number], Number], points: Row) -> Number:
    if not points:
        return mp.mpf(0)
    return mp.quad(integrand, points, method="gauss-legendre", maxdegree=4)


def _sigmoid(y: Number) -> Number:
    return 1 / (1 + mp.exp(-y))


NOISES: dict[str, tuple[Callable[[Number], Number], Callable[[Number], Number]]] = {
    "normal": (mp.npdf, mp.ncdf),
    "logistic": (lambda y: _sigmoid(y) * _sigmoid(-y), _sigmoid),
    "uniform": (
        lambda y: mp.mpf(1 if 0 <= y <= 1 else 0),
        lambda y: min(max(y, mp.mpf(0)), mp.mpf(1)),
    ),
    "exponential": (
        lambda y: mp.exp(-y) if y >= 0 else mp.mpf(0),
        lambda y: -mp.expm1(-y) if y >= 0 else mp.mpf(0),
    ),
}
"""Density and cumulative distribution of each noise."""


def margin_softmax(
    x: Row,
    temperature: Number,
    target: int | None,
    margin: Number = 0.35,
    kind: str = "additive_cosine",
) -> Distribution:
    moved = list(x)
    if target is None:
        # The target is masked: there is nothing to make harder.
        return softmax(x, temperature)
    moved[target] = (
        x[target] - margin if kind == "additive_cosine" else mp.cos(mp.acos(x[target]) + margin)
    )
    return softmax(moved, temperature)


SOLVERS: dict[str, Callable[..., Distribution]] = {
    "softmax": softmax,
    "sparse_softmax": sparse_softmax,
    "taylor_softmax": taylor_softmax,
    "spherical_softmax": spherical_softmax,
    "normalized": normalized,
    "weighted_softmax": weighted_softmax,
    "t_softmax": t_softmax,
    "r_softmax": r_softmax,
    "sparsemax": sparsemax,
    "entmax": entmax,
    "sparsegen": sparsegen,
    "sparsehourglass": sparsehourglass,
    "perturb_max": perturb_max,
    "margin_softmax": margin_softmax,
}
"""Every mapping with a closed definition, by name."""

AT_ZERO_TEMPERATURE = {
    "softmax", "sparse_softmax", "weighted_softmax", "t_softmax", "r_softmax", "sparsemax",
    "entmax", "perturb_max",
}  # fmt: skip
"""The mappings that T = 0 is allowed for."""
