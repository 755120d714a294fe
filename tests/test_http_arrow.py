"""Arrow record batches in and out: the same numbers, to the bit, as the mapping called directly."""

import io
import json
from typing import Any

import httpx
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import torch
from torch import Tensor

from answers import present, supported
from arrow_client import ARROW, ArrowClient, fixed, ragged, stream_of, table_of
from cases import CASES, DEFAULTS, Case, built, spread
from cases import logits as cosines
from mappings.evaluate import evaluate
from mappings.evaluation import Evaluation
from mappings.losses import Targets
from mappings.sampling import Draws
from server import post, shared_client, shared_server

KINDS = [pa.float16(), pa.float32(), pa.float64()]
DENSE = ["probabilities", "log_probabilities"]
SCALARS = ["normalizer", "entropy", "support_size"]
ALL = [*DENSE, *SCALARS, "support"]


def posted(*batches: Any, query: str = "", **fields: Any) -> httpx.Response:
    """The response to batches of the first one's schema, under these request fields."""
    metadata = {"probmap": json.dumps(fields)} if fields else None
    content = stream_of(batches[0].schema.with_metadata(metadata), *batches)
    return shared_client().post(
        f"/v1/stream{query}", content=content, headers={"Content-Type": ARROW}
    )


def ask(columns: dict[str, Any], query: str = "", **fields: Any) -> Any:
    """The table that one batch of columns is answered with."""
    response = posted(pa.record_batch(columns), query=query, **fields)
    assert response.status_code == 200, response.text
    found = table_of(response.content)
    assert found["error"].null_count == len(found), found["error"].to_pylist()
    return found


def values(column: Any) -> Any:
    """All numbers of a column, its lists one after the other."""
    array = column.combine_chunks()
    return (array.flatten() if pa.types.is_nested(array.type) else array).to_numpy(
        zero_copy_only=False
    )


def assert_same(column: Any, wanted: Tensor | None) -> None:
    """One dtype, and the same bits."""
    found, expected = values(column), present(wanted).contiguous().numpy().reshape(-1)
    assert found.dtype == expected.dtype
    assert found.tobytes() == expected.tobytes()


def assert_answers(found: Any, wanted: Evaluation) -> None:
    """Every output of ALL, to the bit."""
    for name in (*DENSE, *SCALARS):
        assert_same(found[name], getattr(wanted, name))
    support = supported(wanted)
    for part in ("indices", "probabilities", "log_probabilities"):
        column = found[f"support_{part}"]
        assert_same(column, getattr(support, part))
        assert column.combine_chunks().offsets.to_pylist() == support.offsets.tolist()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_mapping_answers_as_called_directly(case: Case) -> None:
    logits = spread(case, cosines(4, 37, dtype=torch.float32))
    request = case.request(37)
    found = ask({"logits": fixed(logits, pa.float32())}, mapping=request, outputs=ALL)
    assert_answers(found, evaluate(logits, built(request), outputs=ALL))  # type: ignore[arg-type]
    assert found.schema.field("probabilities").type == pa.list_(pa.float32(), 37)
    assert found.schema.field("support_indices").type == pa.list_(pa.int32())


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("dtype", [None, "float32", "float64"])
@pytest.mark.parametrize("make", [fixed, ragged], ids=["fixed", "list"])
def test_every_dtype_is_read_and_written(kind: Any, dtype: str | None, make: Any) -> None:
    logits = cosines(3, 1001, dtype=torch.float64).numpy().astype(kind.to_pandas_dtype())
    fields = {} if dtype is None else {"dtype": dtype}
    found = ask({"logits": make(logits, kind)}, mapping="sparsemax", outputs=ALL, **fields)
    wanted_dtype = None if dtype is None else getattr(torch, dtype)
    direct = evaluate(
        torch.from_numpy(logits),
        built("sparsemax"),
        outputs=ALL,  # type: ignore[arg-type]
        dtype=wanted_dtype,
    )
    assert_answers(found, direct)


def test_rows_of_different_lengths_are_answered_each_at_its_own() -> None:
    rows = [[0.0, 0.5, 1.0], [2.0, 1.0], [7.0], [1.0, -np.inf, 3.0, 2.0]]
    found = ask({"logits": pa.array(rows, pa.list_(pa.float64()))}, mapping="entmax", outputs=ALL)
    alone = post("/v1/map", {"logits": [[None if x == -np.inf else x for x in r] for r in rows],
                             "mapping": "entmax", "outputs": ALL}).json()  # fmt: skip
    assert found["probabilities"].to_pylist() == alone["probabilities"]
    assert found["support_indices"].to_pylist() == [one["indices"] for one in alone["support"]]
    assert found["entropy"].to_pylist() == alone["entropy"]


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list])
def test_both_widths_of_lists_are_read(kind: Any) -> None:
    logits = pa.array([[0.0, 0.5, 1.0], [7.0]], kind(pa.float32()))
    found = ask({"logits": logits}, mapping="sparsemax")
    assert found["probabilities"].to_pylist() == [[0.0, 0.25, 0.75], [1.0]]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("size", [-1, 3], ids=["list", "fixed"])
def test_a_null_masks_its_class(kind: Any, place: int, size: int) -> None:
    row: list[float | None] = [0.5, 1.0]
    row.insert(place, None)
    logits = pa.array([row, [0.0, 0.0, 0.0]], pa.list_(kind, size))
    found = ask({"logits": logits}, mapping="sparsemax")["probabilities"].to_pylist()
    wanted = [0.25, 0.75]
    wanted.insert(place, 0.0)
    assert found[0] == wanted


def test_batches_that_begin_anywhere_in_their_memory_are_answered() -> None:
    logits = cosines(9, 5, dtype=torch.float32)
    whole = pa.record_batch({"logits": fixed(logits, pa.float32())})
    parts = [whole.slice(start, 3) for start in (0, 3, 6)]
    found = table_of(posted(*parts, mapping="softmax").content)
    assert_same(found["probabilities"], evaluate(logits, built("softmax")).probabilities)


@pytest.mark.parametrize("case", DEFAULTS, ids=str)
@pytest.mark.parametrize("is_object", [True, False], ids=["object", "name"])
def test_every_parameter_of_a_row_can_be_a_column(case: Case, is_object: bool) -> None:
    logits, mapping = cosines(2, 9), case.mapping(9)
    given = {name: getattr(mapping, name) for name in mapping.per_row_fields()}
    columns = {name: pa.array([value] * 2) for name, value in given.items() if value is not None}
    for name in mapping.per_class_fields():
        columns[name] = fixed([getattr(mapping, name).tolist()] * 2, pa.float64())
    assert "temperature" in columns
    rest = {name: value for name, value in case.parameters.items() if name not in columns}
    whole = {"mapping": {"name": case.name, **rest}}
    found = ask(
        {"logits": fixed(logits, pa.float64()), **columns},
        **(whole if is_object else {"mapping": case.name, **rest}),
    )
    assert_same(found["probabilities"], evaluate(logits, mapping).probabilities)


def test_rows_take_their_own_parameters_also_of_processors() -> None:
    logits = cosines(3, 9, dtype=torch.float32)
    columns = {"processors.0.k": pa.array([1, 2, 9], pa.uint8()), "alpha": pa.array([2.0, 1.5, 1])}
    found = ask(
        {"logits": fixed(logits, pa.float32()), **columns}, mapping="entmax", processors=["top_k"]
    )
    alone = post("/v1/map", logits=logits.double().tolist(), dtype="float32",
                 mapping={"name": "entmax", "alpha": [2.0, 1.5, 1.0]},
                 processors=[{"name": "top_k", "k": [1, 2, 9]}]).json()  # fmt: skip
    np.testing.assert_allclose(found["probabilities"].to_pylist(), alone["probabilities"], 1e-6)
    assert [sum(p > 0 for p in row) for row in found["probabilities"].to_pylist()][:2] == [1, 2]


def test_tokens_are_drawn_from_the_seeds_of_a_column() -> None:
    logits = cosines(3, 50, dtype=torch.float32)
    seeds = [7, 0, (1 << 64) - 1]
    found = ask(
        {"logits": fixed(logits, pa.float32()), "seed": pa.array(seeds, pa.uint64())},
        op="sample",
        mapping="softmax",
        samples=5,
    )
    wanted = evaluate(
        logits,
        built("softmax"),
        outputs=["tokens", "token_log_probabilities"],
        draws=Draws(seed=seeds, samples=5),
    )
    assert_same(found["tokens"], wanted.tokens)
    assert_same(found["token_log_probabilities"], wanted.token_log_probabilities)
    assert found["seed"].to_pylist() == seeds
    assert found.schema.field("tokens").type == pa.list_(pa.int64(), 5)


def test_a_seed_the_server_drew_repeats_the_answer() -> None:
    columns = {"logits": fixed(np.zeros((2, 1000)), pa.float32())}
    first = ask(columns, op="sample", mapping="softmax", samples=9)
    again = ask({**columns, "seed": first["seed"].combine_chunks()}, op="sample",
                mapping="softmax", samples=9)  # fmt: skip
    assert first["tokens"].to_pylist() == again["tokens"].to_pylist()


@pytest.mark.parametrize(
    "targets",
    [
        pa.array([2, 0], pa.int16()),
        pa.array([[0.0, 0, 1], [1, 0, 0]], pa.list_(pa.float32())),
        pa.array([[0.0, 0, 1], [1, 0, 0]], pa.list_(pa.float64(), 3)),
    ],
    ids=["ids", "lists", "fixed"],
)
def test_losses_are_those_of_the_targets_of_a_column(targets: Any) -> None:
    logits = torch.tensor([[0, 0.5, 1], [0.25, 0, 0]])
    found = ask(
        {"logits": fixed(logits, pa.float32()), "targets": targets}, op="loss", mapping="sparsemax"
    )
    wanted = evaluate(
        logits,
        built("sparsemax"),
        outputs=["loss", "gradient"],
        targets=Targets(torch.tensor([2, 0])),
    )
    assert_same(found["loss"], wanted.loss)
    assert_same(found["gradient"], wanted.gradient)


def test_a_support_can_be_cut() -> None:
    logits = pa.array([[0, 0.5, 1, -3], [0, 0, 0, 0]], pa.list_(pa.float32(), 4))
    found = ask({"logits": logits}, mapping="sparsemax", outputs=["support"], support_limit=2)
    assert found["support_indices"].to_pylist() == [[2, 1], [0, 1]]
    assert found["support_truncated"].to_pylist() == [False, True]
    assert found["support_mass"].to_pylist() == [1.0, 0.5]


def test_rows_without_an_answer_are_null_where_they_are_reported() -> None:
    logits = pa.array([[0, 0.5, 1], [np.nan] * 3, [None] * 3], pa.list_(pa.float32(), 3))
    found = ask({"logits": logits}, mapping="sparsemax", outputs=ALL, invalid_rows="report")
    assert found["status"].to_pylist() == ["ok", "nan at class 0", "no unmasked class"]
    assert found["probabilities"].to_pylist() == [[0.0, 0.25, 0.75], None, None]
    for name in found.schema.names:
        if name not in ("status", "error"):
            assert found[name].is_null().to_pylist() == [False, True, True], name


def test_the_request_may_be_in_the_url() -> None:
    columns = {"logits": fixed([[0, 0.5, 1]], pa.float32())}
    found = ask(columns, '?mapping=entmax&alpha=2&outputs=["support"]&order=input')
    assert found["support_indices"].to_pylist() == [[2, 1]]
    assert found.schema.names[0] == "support_indices"


def test_the_schema_tells_the_mapping_without_what_columns_give() -> None:
    columns = {"logits": fixed([[0, 0.5, 1]], pa.float32()), "alpha": pa.array([2.0])}
    found = ask(columns, mapping="entmax", temperature=0.5)
    told = json.loads(found.schema.metadata[b"probmap"])
    assert told == {"mapping": {"name": "entmax", "temperature": 0.5}}


@pytest.mark.parametrize("kind", [pa.list_(pa.float32(), 4), pa.list_(pa.float16())], ids=str)
def test_no_rows_have_an_answer_without_rows(kind: Any) -> None:
    columns = {"logits": pa.array([], kind), "temperature": pa.array([], pa.float64())}
    assert len(ask(columns, mapping="softmax", outputs=ALL)) == 0
    schema = pa.record_batch(columns).schema.with_metadata({"probmap": '{"mapping": "softmax"}'})
    response = shared_client().post(
        "/v1/stream", content=stream_of(schema), headers={"Content-Type": ARROW}
    )
    assert len(table_of(response.content)) == 0
    assert response.headers["content-type"] == ARROW


def test_pyarrow_writes_and_reads_one_batch_after_the_other() -> None:
    schema = pa.schema({"logits": pa.list_(pa.float32(), 3)}, {"probmap": '{"mapping": "softmax"}'})
    with ArrowClient(shared_server()) as client:
        writer = pa.ipc.new_stream(client, schema)
        reader = None
        for number in range(20):
            logits = cosines(2, 3, dtype=torch.float32) * number
            writer.write_batch(pa.record_batch([fixed(logits, pa.float32())], schema=schema))
            # The answer is read before the next batch is written.
            reader = reader or pa.ipc.open_stream(client.answer())
            found = pa.Table.from_batches([reader.read_next_batch()])
            assert_same(found["probabilities"], evaluate(logits, built("softmax")).probabilities)
        writer.close()
        client.end()
        assert reader is not None
        with pytest.raises(StopIteration):
            reader.read_next_batch()


def test_polars_writes_what_is_asked_and_reads_the_answer() -> None:
    frame = pl.DataFrame(
        {"logits": [[0, 0.5, 1], [1, None, 3]], "alpha": [2.0, 1.5]},
        schema={"logits": pl.Array(pl.Float32, 3), "alpha": pl.Float64},
    )
    body = io.BytesIO()
    frame.write_ipc_stream(body)
    response = shared_client().post(
        '/v1/stream?mapping=entmax&outputs=["probabilities","support"]',
        content=body.getvalue(),
        headers={"Content-Type": ARROW},
    )
    assert response.status_code == 200, response.text
    read = pl.read_ipc_stream(response.content)
    assert read["probabilities"].to_list() == [[0.0, 0.25, 0.75], [0.0, 0.0, 1.0]]
    assert read["support_indices"].to_list() == [[2, 1], [2]]
    assert read["error"].to_list() == [None, None]
