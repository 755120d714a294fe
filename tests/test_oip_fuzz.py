"""Ten thousand broken requests: each is answered or refused, none fails, hangs or leaks."""

import json
import random
import string
from collections import Counter
from collections.abc import Callable
from http.client import HTTPConnection
from typing import Any

import numpy as np
import pytest

from oip_bodies import HEADER, Sent, body, logits, outputs, rows
from server import RunningServer, running_server

COUNT = 5_000
"""Requests for each HTTP parser (a count)."""

SECONDS = 20.0
"""The longest that an answer may take: below what would be a hang."""

GROWTH = 96 << 20
"""How much more memory the server may occupy afterwards (bytes)."""

Body = tuple[bytes, dict[str, str]]

ROWS = rows(3, 11)


def valid_bodies() -> list[Body]:
    """Requests of every form, all of them valid."""
    alpha = Sent("alpha", np.array([1.0, 1.5, 2.0]))
    top_k = Sent("top_k", np.array([[1], [5], [11]], np.int32))
    seed = Sent("seed", np.array([1, 2, 2**64 - 1], np.uint64))
    text = logits(ROWS, binary=False)
    classification = {"name": "probabilities", "parameters": {"classification": 3}}
    return [
        body(logits(ROWS)),
        body(text),
        body(logits(ROWS.astype(np.float64)), alpha, id="a"),
        body(logits(ROWS.astype(np.float16)), alpha, top_k, outputs=outputs("entropy")),
        body(alpha, text, top_k, parameters={"temperature": 0.5, "binary_data_output": True}),
        body(logits(ROWS), seed, parameters={"samples": 3}, outputs=outputs("tokens", "status")),
        body(logits(ROWS), outputs=[classification, *outputs("support_indices")]),
        body(logits(ROWS), parameters={"timeout": 10**7, "invalid_rows": "report", "min_p": 0.1}),
        (ROWS[0].tobytes(), {HEADER: "0"}),
        body(logits(ROWS[:0]), outputs=outputs("support_offsets")),
    ]


VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2, 2**31, 2**53, 2**63 - 1, 2**63, -(2**63), 1.5, -0.0, 1e308,
    1e-320, "", "logits", "FP32", "BF16", "INT8", "\0", "é🎲", "9" * 400, [], [[]], [[[1]]], {},
    [1, 2], [[1], [2, 3]], ["x"], {"name": "logits"}, {"a": {"b": []}}, [0] * 33, [None] * 33,
    [-1, 3], [3, 11], [11, 3], [1, 33], [2**40, 2**40], "nan", "Infinity",
]  # fmt: skip


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every holder and key in a JSON value."""
    found: list[tuple[Any, Any]] = []
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    for key, child in entries:
        found.append((value, key))
        if isinstance(child, dict | list):
            found += places(child)
    return found


def with_document(change: Callable[[random.Random, Any], None], *, mended: bool) -> Any:
    """A mutation of a body's JSON; where mended, its header says the new length."""

    def mutate(dice: random.Random, given: Body) -> Body:
        content, headers = given
        length = int(headers.get(HEADER, len(content)))
        if not length:
            return given
        document = json.loads(content[:length])
        change(dice, document)
        head = json.dumps(document).encode()
        told = dict(headers)
        if HEADER in headers and mended:
            told[HEADER] = str(len(head))
        return head + content[length:], told

    return mutate


def replace(dice: random.Random, document: Any) -> None:
    holder, key = dice.choice(places(document))
    holder[key] = dice.choice(VALUES)


def remove(dice: random.Random, document: Any) -> None:
    holder, key = dice.choice(places(document))
    del holder[key]


def repeat(dice: random.Random, document: Any) -> None:
    lists = [holder[key] for holder, key in places(document) if isinstance(holder[key], list)]
    if lists and (chosen := dice.choice(lists)):
        chosen.extend([dice.choice(chosen)] * dice.randint(1, 40))


def rename(dice: random.Random, document: Any) -> None:
    objects = [document]
    objects += [holder[key] for holder, key in places(document) if isinstance(holder[key], dict)]
    chosen = dice.choice([one for one in objects if one])
    key = dice.choice(list(chosen))
    chosen[dice.choice(["", "name", "data", "shape", "parameters", "seed", "k"])] = chosen.pop(key)


def move(dice: random.Random, document: Any) -> None:
    one, other = dice.choice(places(document)), dice.choice(places(document))
    one[0][one[1]] = json.loads(json.dumps(other[0][other[1]]))


def flip(dice: random.Random, given: Body) -> Body:
    content = bytearray(given[0])
    for _ in range(dice.choice([1, 1, 2, 8])):
        if content:
            content[dice.randrange(len(content))] = dice.randrange(256)
    return bytes(content), given[1]


def cut(dice: random.Random, given: Body) -> Body:
    content = given[0]
    start, stop = sorted(dice.randrange(len(content) + 1) for _ in range(2))
    return content[:start] + content[stop:], given[1]


def insert(dice: random.Random, given: Body) -> Body:
    content = given[0]
    place = dice.randrange(len(content) + 1)
    return content[:place] + dice.randbytes(dice.choice([1, 4, 33])) + content[place:], given[1]


def lie(dice: random.Random, given: Body) -> Body:
    content, headers = given
    length = int(headers.get(HEADER, len(content)))
    near = str(max(0, length + dice.randint(-5, 5)))
    odd = "".join(dice.choices(string.printable[:95], k=dice.randint(1, 5))).strip() or "0"
    told = dice.choice([near, near, "0", "1", str(len(content)), "99999999999", "-1", odd])
    return content, {**headers, HEADER: told}


def encode(dice: random.Random, given: Body) -> Body:
    return given[0], {**given[1], "Content-Encoding": dice.choice(["gzip", "deflate", "br"])}


MUTATIONS: list[Callable[[random.Random, Body], Body]] = [
    *(
        with_document(change, mended=mended)
        for change in (replace, replace, remove, repeat, rename, move)
        for mended in (True, True, True, False)
    ),
    *[flip, cut, insert, lie] * 3,
    encode,
]

MODELS = ["softmax", "entmax", "sparsemax", "gumbel_softmax", "sparse_softmax", "weighted_softmax"]


def mutated(dice: random.Random, given: Body) -> Body:
    for _ in range(dice.choice([1, 1, 1, 2, 3])):
        try:
            given = dice.choice(MUTATIONS)(dice, given)
        except (ValueError, IndexError, KeyError, TypeError, RecursionError):
            # What is no JSON any more, or has nothing left to change.
            continue
    return given


@pytest.mark.parametrize("parser", ["httptools", "h11"])
def test_broken_requests_are_answered_or_refused(parser: str) -> None:
    dice = random.Random(parser)
    bodies = valid_bodies()
    with running_server(
        "--allow-shared-memory",
        "--http-parser",
        parser,
        PROBMAP_LOG_LEVEL="error",
    ) as server:
        connection = HTTPConnection("127.0.0.1", server.port, timeout=SECONDS)
        for given in bodies:
            assert sent(connection, "entmax", given) == 200
        before = server.resident_bytes()
        statuses: Counter[int] = Counter()
        for _ in range(COUNT):
            given = mutated(dice, dice.choice(bodies))
            status = sent(connection, dice.choice(MODELS), given)
            # A mutation may leave the answer a microsecond.
            is_late = status == 504 and b'"timeout"' in given[0]
            assert 200 <= status < 300 or 400 <= status < 500 or is_late, (status, given)
            statuses[status] += 1
        grown = server.resident_bytes() - before
        assert grown < GROWTH, f"{grown / 2**20:.0f} MiB"
        # The mutations reach the mapping as well as every kind of refusal.
        assert set(statuses) >= {200, 400, 415, 422}
        assert min(statuses[200], statuses[400], statuses[422]) > COUNT // 50
        assert_well(connection, server)
        connection.close()


def assert_well(connection: HTTPConnection, server: RunningServer) -> None:
    """The server still answers, and has logged no error."""
    assert sent(connection, "entmax", valid_bodies()[0]) == 200
    assert "Traceback" not in server.output


def sent(connection: HTTPConnection, model: str, given: Body) -> int:
    """The status of the answer to a body."""
    content, headers = given
    path = f"/v2/models/{model}/infer"
    connection.request("POST", path, content, {**headers, "Content-Length": str(len(content))})
    response = connection.getresponse()
    response.read()
    return response.status
