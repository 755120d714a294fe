"""What a soak asks: every format and operation, some of it wrong, each with its due answer."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from line_client import LINES
from load import binary_request, request_bytes
from oip_bodies import binary, body, logits, rows
from safetensors_bodies import MEDIA_TYPE
from safetensors_bodies import body as safetensors_body

MAP, SAMPLE, LOSS = "/v1/map", "/v1/sample", "/v1/loss"
JSON = {"Content-Type": "application/json"}
SUPPORT = ("support_offsets", "support_indices", "support_probabilities")
VOCABULARIES = (128_256, 151_936)
"""Classes of a row of a large language model (counts)."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A request, and what it is due.

    Attributes:
        request: as it goes over the wire.
        status: of the answer.
        repeats: whether the answer's body is the same each time, to the bit.
    """

    request: bytes
    status: int = 200
    repeats: bool = True


@dataclass(frozen=True, slots=True)
class Kind:
    """Requests of one kind, and who makes them.

    Attributes:
        asks: what is drawn from, each as likely.
        callers: how many make them at a time (a count).
        pause: how long each waits between two, on average (seconds).
        leaves: whether the callers leave before they have an answer.
    """

    name: str
    asks: tuple[Ask, ...]
    callers: int
    pause: float
    leaves: bool = False


def numbers(count: int, classes: int) -> list[list[float]]:
    """Logits as they are written in JSON."""
    found: list[list[float]] = np.round(rows(count, classes).astype(float), 4).tolist()
    return found


def asked(path: str, **fields: Any) -> Ask:
    """A JSON request."""
    return Ask(request_bytes(path, fields))


def inferred(mapping: str, count: int, classes: int, *names: str, **parameters: Any) -> Ask:
    """A request of the Open Inference Protocol, answered with these outputs in binary."""
    fields = binary(*names)
    fields["parameters"] |= parameters
    content, headers = body(logits(rows(count, classes)), **fields)
    return Ask(binary_request(f"/v2/models/{mapping}/infer", content, headers))


def packed(count: int, classes: int, **fields: Any) -> Ask:
    """A safetensors request of bfloat16, answered in the same format."""
    tensor = torch.from_numpy(rows(count, classes)).bfloat16()
    headers = {"Content-Type": MEDIA_TYPE, "Accept": MEDIA_TYPE}
    return Ask(binary_request(MAP, safetensors_body({"logits": tensor}, **fields), headers))


def streamed(lines: int) -> Ask:
    """A stream of JSON lines, of all operations and a bad one now and then."""
    row = numbers(1, 500)
    asks: list[dict[str, Any]] = [
        {"logits": row, "mapping": "entmax", "outputs": ["support"]},
        {"op": "sample", "logits": row, "mapping": "softmax", "samples": 4, "seed": 5},
        {"op": "loss", "logits": row, "mapping": "sparsemax", "targets": [3]},
        {"logits": row, "mapping": "no such mapping"},
    ]
    # An error carries the id of its request, which is the stream's, and each stream has its own.
    fixed = {"Content-Type": LINES, "X-Request-Id": "soak"}
    text = b"\n".join(json.dumps(asks[place % len(asks)]).encode() for place in range(lines))
    return Ask(binary_request("/v1/stream", text, fixed))


def wrong() -> tuple[Ask, ...]:
    """Requests that are refused, each for another reason."""
    nan = np.full((2, 8), np.nan, np.float32)
    not_a_number, headers = body(logits(nan), **binary("probabilities"))
    short, short_headers = body(logits(rows(2, 8)), **binary("probabilities"))
    whole = request_bytes
    return (
        Ask(binary_request(MAP, b'{"logits": [[1, 2', JSON), 400),
        Ask(binary_request("/v2/models/softmax/infer", short[:-4], short_headers), 400),
        Ask(whole(MAP, {"logits": [1, 2], "mapping": "hardmax"}), 404),
        Ask(whole("/v1/maps", {"logits": [1, 2], "mapping": "softmax"}), 404),
        Ask(binary_request(MAP, b"a,b", {"Content-Type": "text/csv"}), 415),
        Ask(whole(MAP, {"logits": [1, 2], "mapping": "entmax", "alpha": 40}), 422),
        Ask(whole(MAP, {"logits": [[None, None]], "mapping": "softmax"}), 422),
        Ask(whole(LOSS, {"logits": [[1, 2]], "mapping": "softmax", "targets": [2]}), 422),
        Ask(binary_request("/v2/models/softmax/infer", not_a_number, headers), 422),
        Ask(whole(MAP, {"logits": [[1]] * 65_537, "mapping": "softmax"}), 413),
    )


def mixture() -> list[Kind]:
    """Everything that is asked for at once."""
    row, few = numbers(1, 1000), numbers(3, 8)
    tokens = ("tokens", "token_log_probabilities")
    many, more = VOCABULARIES
    wide = inferred("softmax", 8, many, "probabilities")
    return [
        Kind(
            "JSON",
            (
                asked(MAP, logits=few, mapping="sparsemax"),
                asked(MAP, logits=few, mapping="entmax", alpha=[1.2, 1.5, 2], outputs=["support"]),
                asked(MAP, logits=row, mapping="softmax", processors=[{"name": "top_p", "p": 0.9}]),
                asked(MAP, logits=few, mapping="r_softmax", outputs=["entropy"]),
                asked(
                    MAP,
                    logits=few,
                    mapping="sparsemax",
                    outputs=["jacobian"],
                    jacobian={"form": "factors"},
                ),
            ),
            8,
            0.02,
        ),
        Kind(
            "OIP, sparse",
            (inferred("entmax", 4, 32_000, *SUPPORT), inferred("sparsemax", 32, 4_000, *SUPPORT)),
            3,
            0.05,
        ),
        Kind(
            "OIP, dense",
            (
                inferred("softmax", 4, 32_000, "probabilities"),
                inferred("entmax", 16, 1_000, "probabilities"),
            ),
            3,
            0.05,
        ),
        Kind(
            "safetensors",
            (
                packed(4, 32_000, mapping="softmax"),
                packed(8, 4_000, mapping="entmax", outputs=["support"]),
            ),
            3,
            0.05,
        ),
        Kind("streams", (streamed(20), streamed(200)), 2, 0.2),
        Kind(
            "samples",
            (
                asked(SAMPLE, logits=row, mapping="softmax", samples=16, seed=7),
                inferred("sparse_softmax", 4, 32_000, *tokens, k=50, seed=7),
            ),
            3,
            0.03,
        ),
        Kind(
            "losses",
            (
                asked(LOSS, logits=few, mapping="sparsemax", targets=[0, 1, 7]),
                asked(LOSS, logits=row, mapping="entmax", targets=[5]),
            ),
            3,
            0.03,
        ),
        Kind(
            "vocabularies",
            (
                wide,
                inferred("entmax", 8, more, *SUPPORT),
                packed(4, more, mapping="sparsemax", outputs=["support"]),
            ),
            2,
            0.5,
        ),
        Kind("wrong", wrong(), 3, 0.05),
        Kind(
            "who leave",
            (wide, asked(MAP, logits=row, mapping="perturb_max"), streamed(200)),
            3,
            0.1,
            leaves=True,
        ),
        Kind("metrics", (Ask(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", repeats=False),), 1, 2.0),
    ]
