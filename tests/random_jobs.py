"""Random jobs of every kind, reproducibly: what a day's callers may ask at once."""

import random
from typing import Any

import torch

from cases import CASES, logits
from schemas.read import read_request
from schemas.request import LossRequest, MapRequest, Request, SampleRequest
from service.engine.job import Job

WIDTHS = (3, 5, 17, 300)
"""Classes of a job's rows."""

MAP_OUTPUTS = (
    "probabilities", "log_probabilities", "support", "normalizer", "entropy", "support_size",
    "jacobian", "parameter_gradients",
)  # fmt: skip

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)

SMALL_CASES = [case for case in CASES if case.name != "perturb_max" or case.label == "gumbel"]
"""Mappings that take little time, in every static shape they have."""


def random_job(chance: random.Random) -> Job:
    """A job that is right in all but, sometimes, a row."""
    rows, classes = chance.randint(1, 5), chance.choice(WIDTHS)
    values = 3 * logits(rows, classes, seed=chance.randrange(1 << 30))
    case = chance.choice(SMALL_CASES)
    if case.name == "margin_softmax":
        values = values / 3
    if chance.random() < 0.15:
        values[chance.randrange(rows), chance.randrange(classes)] = torch.nan
    if chance.random() < 0.2 and classes > 3:
        values[:, chance.randrange(1, classes)] = -torch.inf
    body: dict[str, Any] = {"mapping": case.request(classes)}
    if chance.random() < 0.5:
        warm = chance.uniform(0.5, 2.0)
        several = [warm + place / 7 for place in range(rows)]
        body["mapping"]["temperature"] = several if chance.random() < 0.5 else warm
    if chance.random() < 0.3 and case.name != "margin_softmax":
        body["processors"] = [{"name": "top_k", "k": chance.randint(1, classes)}]
    if chance.random() < 0.5:
        body["invalid_rows"] = "report"
    if chance.random() < 0.3:
        body["dtype"] = chance.choice(["float32", "float64"])
    if chance.random() < 0.3:
        body["support_limit"] = chance.randint(1, classes)
    model = _asked(chance, body, rows, classes)
    request = read_request(model, body, widths=[classes] * rows)
    return Job(values.to(chance.choice(DTYPES)), request, None, 1 << 24)


def _asked(chance: random.Random, body: dict[str, Any], rows: int, classes: int) -> type[Request]:
    """Adds what an endpoint takes beside the mapping; the endpoint's model."""
    some = chance.sample(MAP_OUTPUTS, chance.randint(1, 3))
    if "jacobian" in some:
        form = chance.choice(["dense", "support", "factors", "jvp", "vjp"])
        body["jacobian"] = {"form": form}
        if form in ("jvp", "vjp"):
            body["jacobian"]["vector"] = logits(rows, classes, seed=chance.randrange(99))
    kind = chance.choice(["map", "map", "sample", "loss"])
    if kind == "sample":
        seeds = [chance.randrange(1 << 64) for _ in range(rows)]
        body["seed"] = seeds if chance.random() < 0.5 else seeds[0]
        body["samples"] = chance.randint(1, 3)
        body["replacement"] = chance.random() < 0.7
        body["outputs"] = ["tokens", "token_log_probabilities", *some]
        return SampleRequest
    if kind == "loss":
        classes_hit = torch.tensor([chance.randrange(classes) for _ in range(rows)])
        whole = torch.full((rows, classes), 1 / classes, dtype=torch.float64)
        body["targets"] = classes_hit if chance.random() < 0.5 else whole
        body["kind"] = chance.choice(["natural", "accuracy", "stop_gradient"])
        body["outputs"] = ["loss", "gradient", *some]
        return LossRequest
    body["outputs"] = some
    return MapRequest
