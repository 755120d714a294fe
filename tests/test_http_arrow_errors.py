"""Arrow streams that cannot be answered: refused before the answer begins, or told in place."""

import json
import signal
import time
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest

from arrow_client import ARROW, ArrowClient, fixed, stream_of, table_of
from server import ROOT, RunningServer, faulty_server, metric, running_server
from waiting import until

MB = 1 << 20
END = b"\xff\xff\xff\xff\0\0\0\0"
FLOATS = pa.list_(pa.float32(), 3)
GOOD = pa.record_batch({"logits": fixed([[0, 0.5, 1]], pa.float32())})
ANSWER = [0.0, 0.25, 0.75]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """A server with the faulty mapping."""
    with faulty_server() as running:
        yield running


def asking(schema: Any, **fields: Any) -> Any:
    """A schema with request fields."""
    return schema.with_metadata({"probmap": json.dumps({"mapping": "sparsemax", **fields})})


def post(server: RunningServer, content: bytes, query: str = "", **headers: str) -> httpx.Response:
    sent = {"Content-Type": ARROW, **headers}
    return httpx.post(f"{server.url}/v1/stream{query}", content=content, headers=sent, timeout=60)


def rows_of(content: bytes) -> list[Any]:
    """Each batch's rows, also where the stream's end is missing."""
    return [batch.to_pylist() for batch in pa.ipc.open_stream(content)]


def problem_of(row: Any) -> Any:
    """The problem document in a row, which is null else."""
    assert [name for name, value in row.items() if value is not None] == ["error"]
    return json.loads(row["error"])


def empty(kind: Any, **more: Any) -> Any:
    return pa.schema({"logits": kind, **more})


SCHEMAS: dict[str, tuple[Any, int, str]] = {
    "no mapping": (empty(FLOATS), 422, "mapping is missing"),
    "no JSON": (empty(FLOATS).with_metadata({"probmap": "{"}), 400, '"probmap" are not valid JSON'),
    "no object": (empty(FLOATS).with_metadata({"probmap": "[]"}), 422, "should be an object"),
    "no text": (empty(FLOATS).with_metadata({"probmap": b"\xff"}), 400, "not valid JSON"),
    "an unknown mapping": (asking(empty(FLOATS), mapping="nope"), 404, "nope"),
    "an unknown field": (asking(empty(FLOATS), alfa=1), 422, "alfa"),
    "an unknown operation": (asking(empty(FLOATS), op="delete"), 422, "op should be one of"),
    "an unknown output": (asking(empty(FLOATS), outputs=["x"]), 422, "outputs"),
    "a Jacobian": (asking(empty(FLOATS), outputs=["jacobian"]), 422, "ask for it as JSON"),
    "a form": (asking(empty(FLOATS), jacobian={"form": "factors"}), 422, "ask for it as JSON"),
    "gradients": (asking(empty(FLOATS), outputs=["parameter_gradients"]), 422, "as JSON"),
    "logits as field": (asking(empty(FLOATS), logits=[1]), 422, "logits is a column"),
    "no logits": (asking(pa.schema({"x": FLOATS})), 422, "the column logits is missing"),
    "integers": (asking(empty(pa.list_(pa.int32()))), 422, "float16, 32 or 64"),
    "numbers": (asking(empty(pa.float32())), 422, "column of lists"),
    "texts": (asking(empty(pa.list_(pa.string()))), 422, "column of lists"),
    "nested lists": (asking(empty(pa.list_(FLOATS))), 422, "column of lists"),
    "no class": (asking(empty(pa.list_(pa.float32(), 0))), 422, "logits has no class"),
    "too many classes": (asking(empty(pa.list_(pa.float32(), 1 << 26))), 413, "--max-classes"),
    "an unknown column": (asking(empty(FLOATS, alpha=pa.float32())), 422, "'alpha'"),
    "an unknown place": (asking(empty(FLOATS, **{"a.b": pa.int8()})), 422, "stands for nothing"),
    "a column of texts": (asking(empty(FLOATS, temperature=pa.string())), 422, "of numbers"),
    "a dictionary": (
        asking(empty(FLOATS, temperature=pa.dictionary(pa.int8(), pa.float64()))),
        422,
        "of numbers",
    ),
    "a field twice": (
        asking(empty(FLOATS, temperature=pa.float64()), temperature=2),
        422,
        "given twice",
    ),
    "a column twice": (
        asking(pa.schema([("logits", FLOATS), ("logits", FLOATS)])),
        400,
        "comes twice",
    ),
    "too many columns": (
        asking(empty(FLOATS, **{f"c{number}": pa.int8() for number in range(300)})),
        400,
        "more than 256 columns",
    ),
    "no targets": (asking(empty(FLOATS), op="loss"), 422, "targets"),
    "a seed of a map": (asking(empty(FLOATS, seed=pa.uint64())), 422, "'seed'"),
    "long metadata": (asking(empty(FLOATS), x="x" * MB), 400, "bytes of metadata"),
}


@pytest.mark.parametrize(("schema", "status", "told"), SCHEMAS.values(), ids=SCHEMAS)
def test_a_schema_that_cannot_be_is_refused_before_the_answer_begins(
    server: RunningServer, schema: Any, status: int, told: str
) -> None:
    response = post(server, stream_of(schema))
    assert response.headers["content-type"] == "application/problem+json"
    assert told in response.json()["detail"]
    assert response.status_code == status


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "it has no schema"),
        (b"\xff\xff\xff", "ends within a message"),
        (END, "it has no schema"),
        (b"ARROW1\0\0" + bytes(64), "new_stream"),
        (b'{"logits": [1, 2]}', "FF FF FF FF"),
        (b"\xff\xff\xff\xff\xff\xff\xff\xff", "bytes of metadata"),
        (b"\xff\xff\xff\xff\x08\0\0\0" + bytes(8), "unknown version"),
        (stream_of(asking(GOOD.schema))[:100], "ends within a message"),
        (
            stream_of(asking(GOOD.schema), GOOD)[len(asking(GOOD.schema).serialize()) :],
            "before the schema",
        ),
    ],
)
def test_what_is_no_stream_is_refused(server: RunningServer, content: bytes, told: str) -> None:
    response = post(server, content)
    assert response.status_code == 400
    assert told in response.json()["detail"]


@pytest.mark.parametrize(
    ("query", "headers", "status", "told"),
    [
        ("?order=completion", {}, 422, "in order"),
        ("?mapping=softmax", {}, 422, "given twice"),
        ("?temperature=1&temperature=2", {}, 422, "given twice"),
        ("?alfa=2", {}, 422, "alfa"),
        ("", {"Content-Encoding": "gzip"}, 415, "not read compressed"),
    ],
)
def test_what_surrounds_a_stream_is_checked(
    server: RunningServer, query: str, headers: dict[str, str], status: int, told: str
) -> None:
    response = post(server, stream_of(asking(GOOD.schema), GOOD), query, **headers)
    assert response.status_code == status
    assert told in response.json()["detail"]


def batch(logits: Any, kind: Any = FLOATS, **more: Any) -> Any:
    return pa.record_batch({"logits": pa.array(logits, kind), **more})


def by_row(values: list[Any], kind: Any = None) -> Any:
    """Rows with a temperature each."""
    return batch([[0, 0.5, 1]] * len(values), temperature=pa.array(values, kind))


LISTS = pa.list_(pa.float32())

BATCHES: dict[str, tuple[Any, str, str]] = {
    "nan": (batch([[0, 1, np.nan]]), "invalid_row", "row 0: nan at class 2"),
    "nothing unmasked": (batch([[0, 1, 2], [None] * 3]), "invalid_row", "row 1"),
    "a null row": (batch([[0, 1, 2], None]), "invalid_request", "logits[1] is null"),
    "a null list": (batch([[0], [1], None], LISTS), "invalid_request", "logits[2] is null"),
    "no class": (batch([[0], []], LISTS), "invalid_request", "logits[1] has no class"),
    "a null parameter": (by_row([1.0, None]), "invalid_request", "temperature[1] is null"),
    "out of bounds": (by_row([1, 2, -3]), "invalid_request", "temperature[2]"),
    "not finite": (by_row([1, np.inf]), "invalid_request", "temperature[1]"),
}


@pytest.mark.parametrize(("bad", "code", "told"), BATCHES.values(), ids=BATCHES)
def test_a_bad_batch_is_answered_in_its_place(
    server: RunningServer, bad: Any, code: str, told: str
) -> None:
    good = bad.slice(0, 1)
    response = post(server, stream_of(asking(bad.schema), good, bad, good))
    assert response.content.endswith(END)
    first, failed, last = rows_of(response.content)
    if code != "invalid_row" or "0" not in told:
        assert first == last
        assert first[0]["error"] is None
    problem = problem_of(failed[0])
    assert problem["code"] == code
    assert told in problem["detail"]
    assert len(failed) == len(bad)
    assert all(problem_of(row) == {"code": code} for row in failed[1:])


def test_a_failure_of_the_computation_is_told_in_place(server: RunningServer) -> None:
    bad = batch([[666, 1, 2]])
    mapping = {"name": "faulty", "fault": "error"}
    content = post(server, stream_of(asking(bad.schema, mapping=mapping), GOOD, bad, GOOD)).content
    first, failed, last = rows_of(content)
    assert first == last
    assert problem_of(failed[0])["code"] == "internal_error"
    assert "injected" not in failed[0]["error"]


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_compressed_batch_is_refused_in_its_place(server: RunningServer, codec: str) -> None:
    wide = pa.record_batch({"logits": fixed(np.zeros((2, 3000)), pa.float32())})
    schema, sink = asking(wide.schema), pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        writer.write_batch(wide)
    [failed] = rows_of(post(server, bytes(sink.getvalue())).content)
    assert len(failed) == 1
    assert "write it without compression" in problem_of(failed[0])["detail"]


@pytest.mark.parametrize(
    ("flags", "bad", "setting"),
    [
        (["--max-body-bytes", "10000"], np.zeros((1000, 3)), "--max-body-bytes"),
        (["--max-rows", "10"], np.zeros((11, 3)), "--max-rows"),
        (["--max-elements", "30"], np.zeros((11, 3)), "--max-elements"),
    ],
)
def test_a_batch_over_a_limit_is_told_in_place_and_the_next_is_read(
    flags: list[str], bad: Any, setting: str
) -> None:
    bad = pa.record_batch({"logits": fixed(bad, pa.float32())})
    with running_server(*flags) as server:
        content = post(server, stream_of(asking(bad.schema), GOOD, bad, GOOD)).content
    first, failed, last = rows_of(content)
    assert first == last
    assert first[0]["probabilities"] == ANSWER
    assert len(failed) == 1 or setting == "--max-elements"
    problem = problem_of(failed[0])
    assert setting in problem["detail"]
    assert content.endswith(END)


def test_the_limit_of_numbers_is_for_what_can_be_larger_than_the_logits() -> None:
    many = pa.record_batch({"logits": fixed(np.zeros((11, 3)), pa.float32())})
    drawing = asking(many.schema, op="sample", samples=16, outputs=["tokens"])
    with running_server("--max-output-elements", "32") as server:
        dense = post(server, stream_of(asking(many.schema), many)).content
        drawn = post(server, stream_of(drawing, GOOD, many)).content
    assert [row["probabilities"] for row in rows_of(dense)[0]] == [pytest.approx([1 / 3] * 3)] * 11
    first, failed = rows_of(drawn)
    assert len(first[0]["tokens"]) == 16
    assert "--max-output-elements" in problem_of(failed[0])["detail"]


@pytest.mark.parametrize(
    ("tail", "told"),
    [
        (b"garbage!", "FF FF FF FF"),
        (b"\xff\xff\xff\xff\x10\0\0\0" + bytes(16), "unknown version"),
        (bytes(asking(GOOD.schema).serialize()), "a second schema"),
        (b"\xff\xff\xff\xff", "ends within a message"),
        (b"\xff\xff\xff\xff\x40\0\0\0abc", "ends within a message"),
    ],
)
def test_garbage_ends_the_stream_after_what_came_before(
    server: RunningServer, tail: bytes, told: str
) -> None:
    sent = stream_of(asking(GOOD.schema), GOOD, GOOD).removesuffix(END) + tail
    content = post(server, sent).content
    assert not content.endswith(END)
    first, second, [last] = rows_of(content)
    assert first == second
    assert first[0]["probabilities"] == ANSWER
    assert told in problem_of(last)["detail"]


def test_the_end_need_not_be_marked_and_nothing_behind_it_is_read(server: RunningServer) -> None:
    whole = stream_of(asking(GOOD.schema), GOOD)
    for sent in (whole.removesuffix(END), whole + b"more"):
        table = table_of(post(server, sent).content)
        assert table["probabilities"].to_pylist() == [ANSWER]


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_a_stream_may_be_cut_anywhere(server: RunningServer, size: int) -> None:
    sent = stream_of(asking(GOOD.schema), *[GOOD] * 9)
    with ArrowClient(server) as client:
        for start in range(0, len(sent), size):
            client.write(sent[start : start + size])
        client.end()
        assert table_of(client.answer().read())["probabilities"].to_pylist() == [ANSWER] * 9


def test_who_sends_nothing_for_long_is_told_so() -> None:
    sent = stream_of(asking(GOOD.schema), GOOD).removesuffix(END)
    with running_server("--stream-idle-seconds", "2") as server, ArrowClient(server) as client:
        client.write(sent)
        content = client.answer().read()
    [first], [last] = rows_of(content)
    assert first["probabilities"] == ANSWER
    assert problem_of(last)["code"] == "body_timeout"


def test_told_to_stop_the_server_ends_its_streams() -> None:
    slow = asking(GOOD.schema, mapping={"name": "faulty", "fault": "slow", "seconds": 0.5})
    with faulty_server() as stopping, ArrowClient(stopping) as client:
        client.write(stream_of(slow, GOOD, GOOD).removesuffix(END))
        answer = client.answer()
        reader = pa.ipc.open_stream(answer)
        first = reader.read_next_batch()
        stopping.process.send_signal(signal.SIGTERM)
        second, last = reader.read_next_batch(), reader.read_next_batch()
        assert stopping.process.wait(10) == 0
        assert "Traceback" not in stopping.output
    assert first.to_pylist()[0]["error"] is None
    assert first == second
    assert problem_of(last.to_pylist()[0])["code"] == "not_ready"


def test_who_leaves_a_stream_ends_its_work(server: RunningServer) -> None:
    before = metric(server, "probmap_batch_rows_sum")
    with ArrowClient(server) as client:
        writer = pa.ipc.new_stream(client, asking(GOOD.schema))
        for _ in range(50):
            writer.write_batch(GOOD)
        pa.ipc.open_stream(client.answer()).read_next_batch()
        client.leave()
    until(lambda: metric(server, "probmap_inflight_requests") == 0)
    assert metric(server, "probmap_inflight_bytes") == 0
    computed = metric(server, "probmap_batch_rows_sum") - before
    time.sleep(0.3)
    assert metric(server, "probmap_batch_rows_sum") - before == computed <= 50


WITHOUT = """
import sys
sys.modules["pyarrow"] = None
from service import cli
sys.exit(cli.main())
"""


def test_without_pyarrow_a_stream_of_batches_is_refused_with_the_cure() -> None:
    program = ("-c", WITHOUT)
    with running_server(program=program, PYTHONPATH=str(ROOT)) as server:
        refused = post(server, stream_of(asking(GOOD.schema), GOOD))
        lines = httpx.post(f"{server.url}/v1/stream", content=b'{"logits":[1],"mapping":"softmax"}')
    assert refused.status_code == 415
    assert "pip install 'probmap[arrow]'" in refused.json()["detail"]
    assert lines.status_code == 200
