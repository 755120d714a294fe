"""Who answers the requests of benchmarks/serve.py, and what each should reach beside another."""

import json
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
import torch
from numpy.typing import NDArray

from oip_bodies import HEADER, body, logits, parsed, rows
from wrk import Request

SMALL, LARGE = 1_000, 128_256
"""Classes of a row: of a classifier, and of a language model."""

SUPPORT = ("support_offsets", "support_indices", "support_probabilities")


@dataclass(frozen=True)
class Target:
    """What a contender should reach beside another.

    Attributes:
        other: the contender it is held against.
        least: how many times as many answers a second it should give.
        most_p50: which share of the other's median time it should take at most.
    """

    other: str
    least: float | None = None
    most_p50: float | None = None


@dataclass(frozen=True)
class Contender:
    """A way to have some rows answered.

    Attributes:
        name: whose, and what of.
        request: to send.
        targets: what it should reach.
    """

    name: str
    request: Request
    targets: tuple[Target, ...] = ()


@dataclass(frozen=True)
class Servers:
    """Where the servers are; None: there is no such server."""

    own: str
    echo: str
    triton: str | None


def binary(*names: str) -> list[dict[str, Any]]:
    """Outputs as bytes; said of each, for of the whole request Triton does not heed it."""
    return [{"name": name, "parameters": {"binary_data": True}} for name in names]


def contenders(servers: Servers, count: int, classes: int, connections: int) -> list[Contender]:
    """Everybody who answers some rows."""
    array = rows(count, classes)
    dense, headers = body(logits(array), outputs=binary("probabilities"))
    sparse, sparse_headers = body(logits(array), outputs=binary(*SUPPORT))
    softmax, entmax = "/v2/models/softmax/infer", "/v2/models/entmax/infer"
    is_large, is_single = classes == LARGE, connections == 1
    p50 = 1 / 3 if is_single else None
    echo = Target("echo", 0.6 if is_large else None)
    found = [
        Contender(
            "softmax",
            Request(servers.own + softmax, dense, headers),
            (Target("Triton softmax", 2.5 if is_large else 3, p50), echo),
        ),
        Contender(
            "entmax15, sparse",
            Request(servers.own + entmax, sparse, sparse_headers),
            (Target("Triton entmax15", 10 if is_large else None, p50),),
        ),
        Contender(
            "entmax15, dense",
            Request(servers.own + entmax, dense, headers),
            (Target("Triton entmax15", 5 if is_large else None, p50),),
        ),
        Contender("echo", Request(f"{servers.echo}/echo", dense, {})),
    ]
    if servers.triton is not None:
        found += [
            Contender("Triton softmax", Request(servers.triton + softmax, dense, headers)),
            Contender("Triton entmax15", Request(servers.triton + entmax, dense, headers)),
        ]
    if not is_large:
        numbers = [[round(x, 4) for x in row] for row in array.tolist()]
        text = json.dumps({"logits": numbers, "mapping": "softmax", "dtype": "float32"}).encode()
        plain = {"Content-Type": "application/json"}
        reach = (Target("JSON echo", 0.5),)
        found += [
            Contender("softmax, JSON", Request(f"{servers.own}/v1/map", text, plain), reach),
            Contender("JSON echo", Request(f"{servers.echo}/echo", text, plain)),
        ]
    check(found, array)
    return found


def check(found: list[Contender], array: NDArray[Any]) -> None:
    """Asks everybody once, and asserts that they agree."""
    wanted = {"softmax": torch.softmax(torch.from_numpy(array).double(), -1).numpy()}
    for one in found:
        request = one.request
        answer = httpx.post(
            request.url, content=request.body, headers=dict(request.headers), timeout=120
        )
        assert answer.status_code == 200, (one.name, answer.text)
        if "/v2/" not in request.url:
            continue
        assert HEADER in answer.headers, f"{one.name} answers numbers as text"
        mapping = "softmax" if "softmax" in request.url else "entmax"
        _, tensors = parsed(answer)
        if "sparse" in one.name:
            offsets, indices, values = (tensors[name] for name in SUPPORT)
            probabilities = np.zeros_like(array)
            place = np.repeat(np.arange(len(array)), np.diff(offsets))
            probabilities[place, indices] = values
        else:
            probabilities = tensors["probabilities"]
        # Of entmax the first answer, ours, is what the package's is held against.
        np.testing.assert_allclose(
            probabilities, wanted.setdefault(mapping, probabilities), atol=2e-6
        )
