"""safetensors bodies in and out: the same numbers, to the bit, as the mapping called directly."""

import json
from typing import Any

import httpx
import pytest
import torch
from safetensors.torch import save
from torch import Tensor

from answers import present, supported
from cases import CASES, DEFAULTS, Case, built, spread
from cases import logits as cosines
from mappings.evaluate import evaluate
from mappings.losses import Targets
from mappings.sampling import Draws
from mappings.wanted import Derivatives
from processor_cases import chain
from safetensors_bodies import (
    MEDIA_TYPE,
    answered,
    ask,
    body,
    header,
    post_binary,
    random_logits,
    raw,
    said,
)
from server import post, shared_client

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]

DENSE = ["probabilities", "log_probabilities", "normalizer", "entropy", "support_size"]

SPARSEMAX = built("sparsemax")


def same(found: Tensor, wanted: Tensor | None) -> bool:
    """Whether two tensors have one dtype, one shape and the same bits."""
    wanted = present(wanted)
    alike = found.dtype == wanted.dtype and found.shape == wanted.shape
    return alike and found.numpy().tobytes() == wanted.contiguous().numpy().tobytes()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_float32_answers_are_those_of_the_mapping_called_directly(case: Case) -> None:
    logits = spread(case, cosines(4, 37, dtype=torch.float32))
    tensors = {"logits": logits}
    request = case.request(37)
    found = ask("/v1/map", tensors, mapping=request, outputs=[*DENSE, "support"])
    wanted = evaluate(logits, built(request), outputs=[*DENSE, "support"])  # type: ignore[list-item]
    for name in DENSE:
        assert same(found[name], getattr(wanted, name)), name
    for part in ("offsets", "indices", "probabilities", "log_probabilities"):
        assert same(found[f"support_{part}"], getattr(supported(wanted), part)), part


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_of_logits_is_taken_as_it_is(dtype: torch.dtype) -> None:
    logits = random_logits(3, 1001, dtype)
    found = ask("/v1/map", {"logits": logits}, mapping="sparsemax")["probabilities"]
    assert found.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert same(found, evaluate(logits, SPARSEMAX).probabilities)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_the_dtype_of_the_answer_can_be_chosen(dtype: torch.dtype) -> None:
    logits = random_logits(3, 11, torch.bfloat16)
    name = str(dtype).removeprefix("torch.")
    found = ask("/v1/map", {"logits": logits}, mapping="softmax", dtype=name)["probabilities"]
    assert same(found, evaluate(logits, built("softmax"), dtype=dtype).probabilities)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("padding", range(1, 9))
def test_numbers_are_right_wherever_their_bytes_begin(dtype: torch.dtype, padding: int) -> None:
    logits = random_logits(2, 5, dtype)
    made = body({"logits": logits}, mapping="softmax")
    size = int.from_bytes(made[:8], "little")
    padded = made[8 : 8 + size].rstrip(b" ") + b" " * padding
    found = answered(post_binary("/v1/map", raw(padded, made[8 + size :])))
    assert same(found["probabilities"], evaluate(logits, built("softmax")).probabilities)


def test_a_flat_tensor_is_one_row() -> None:
    found = ask("/v1/map", {"logits": torch.tensor([0.0, 0.5, 1.0])}, mapping="sparsemax")
    assert found["probabilities"].tolist() == [[0.0, 0.25, 0.75]]


def test_a_masked_class_gets_zero() -> None:
    found = ask("/v1/map", {"logits": torch.tensor([0.5, -torch.inf, 1.0])}, mapping="sparsemax")
    assert found["probabilities"].tolist() == [[0.25, 0.0, 0.75]]


@pytest.mark.parametrize(
    ("shape", "classes"), [((0,), 1), ((0, 7), 7), ((0, 0), 1), ((0, 1 << 25), 1 << 25)], ids=str
)
def test_no_row_has_an_empty_answer_of_as_many_classes(
    shape: tuple[int, ...], classes: int
) -> None:
    outputs = ["probabilities", "support", "jacobian"]
    response = post_binary(
        "/v1/map", body({"logits": torch.zeros(shape)}, mapping="softmax", outputs=outputs)
    )
    found = answered(response)
    assert said(response)["rows"] == 0
    assert found["probabilities"].shape == (0, classes)
    assert found["jacobian"].shape == (0, classes, classes)
    assert found["support_indices"].shape == (0,)
    assert found["support_offsets"].tolist() == [0]


def tensors_of(case: Case) -> dict[str, Tensor]:
    """The per-row parameters of a case for two rows, and its weights."""
    mapping = case.mapping(9)
    given = {name: getattr(mapping, name) for name in mapping.per_row_fields()}
    dtypes = {float: torch.float64, int: torch.uint64}
    made = {
        name: torch.tensor([value, value], dtype=dtypes[type(value)])
        for name, value in given.items()
        if value is not None
    }
    return made | {name: getattr(mapping, name) for name in mapping.per_class_fields()}


@pytest.mark.parametrize("case", DEFAULTS, ids=str)
@pytest.mark.parametrize("is_object", [True, False], ids=["object", "name"])
def test_every_parameter_of_a_row_can_be_a_tensor(case: Case, is_object: bool) -> None:
    logits, tensors = cosines(2, 9), tensors_of(case)
    assert "temperature" in tensors
    rest = {name: value for name, value in case.parameters.items() if name not in tensors}
    whole = {"mapping": {"name": case.name, **rest}}
    found = ask(
        "/v1/map",
        {"logits": logits, **tensors},
        **(whole if is_object else {"mapping": case.name, **rest}),
    )
    assert same(found["probabilities"], evaluate(logits, case.mapping(9)).probabilities)


def test_rows_take_their_own_parameters() -> None:
    logits = torch.tensor([[0.0, 0.5, 1.0]] * 2)
    alpha = torch.tensor([2.0, 16.0], dtype=torch.bfloat16)
    found = ask("/v1/map", {"logits": logits, "alpha": alpha}, mapping="entmax")
    wanted = evaluate(logits, built({"name": "entmax", "alpha": [2.0, 16.0]}))
    assert same(found["probabilities"], wanted.probabilities)


def test_one_number_is_for_all_rows() -> None:
    logits = random_logits(3, 5)
    found = ask("/v1/map", {"logits": logits, "temperature": torch.tensor(0.5)}, mapping="softmax")
    wanted = evaluate(logits, built({"name": "softmax", "temperature": 0.5}))
    assert same(found["probabilities"], wanted.probabilities)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_weights_of_every_row_can_be_a_tensor(dtype: torch.dtype) -> None:
    logits, weights = random_logits(2, 3), torch.tensor([[1.0, 0, 2], [0.5, 4, 1]]).to(dtype)
    found = ask("/v1/map", {"logits": logits, "weights": weights}, mapping="weighted_softmax")
    wanted = evaluate(logits, built({"name": "weighted_softmax", "weights": weights.double()}))
    assert same(found["probabilities"], wanted.probabilities)


PROCESSED: dict[str, tuple[dict[str, Tensor], list[Any], list[dict[str, Any]]]] = {
    "an id for all rows": (
        {"processors.0.ids": torch.tensor([1])},
        [{"name": "ban"}],
        [{"name": "ban", "ids": [1]}],
    ),
    "just a name": (
        {"processors.0.ids": torch.tensor([1], dtype=torch.uint8)},
        ["ban"],
        [{"name": "ban", "ids": [1]}],
    ),
    "ids by row, filled with -1": (
        {"processors.0.ids": torch.tensor([[1, -1], [0, 3]])},
        [{"name": "ban"}],
        [{"name": "ban", "ids": [[1], [0, 3]]}],
    ),
    "ids and values by row, filled": (
        {
            "processors.1.ids": torch.tensor([[-1, 1, 2], [0, 3, -1]], dtype=torch.int32),
            "processors.1.values": torch.tensor([[9.0, 0.5, -1.0], [2.0, 1.5, 9.0]]),
        },
        [{"name": "top_k", "k": 4}, {"name": "bias"}],
        [
            {"name": "top_k", "k": 4},
            {"name": "bias", "ids": [[1, 2], [0, 3]], "values": [[0.5, -1.0], [2.0, 1.5]]},
        ],
    ),
    "counts beside ids": (
        {
            "processors.0.ids": torch.tensor([[1, -1], [0, 3]]),
            "processors.0.counts": torch.tensor([[2, 0], [1, 4]]),
            "processors.0.presence": torch.tensor([0.5, 1.0]),
        },
        [{"name": "presence_frequency", "frequency": 0.25}],
        [
            {
                "name": "presence_frequency",
                "ids": [[1], [0, 3]],
                "counts": [[2], [1, 4]],
                "presence": [0.5, 1.0],
                "frequency": 0.25,
            }
        ],
    ),
    "a k of every row": (
        {"processors.0.k": torch.tensor([1, 3])},
        ["top_k"],
        [{"name": "top_k", "k": [1, 3]}],
    ),
}


@pytest.mark.parametrize(("tensors", "given", "meant"), PROCESSED.values(), ids=PROCESSED)
def test_processors_take_tensors(
    tensors: dict[str, Tensor], given: list[Any], meant: list[dict[str, Any]]
) -> None:
    logits = random_logits(2, 6)
    found = ask("/v1/map", {"logits": logits, **tensors}, mapping="softmax", processors=given)
    wanted = evaluate(logits, built("softmax"), processors=chain(*meant))
    assert same(found["probabilities"], wanted.probabilities)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8], ids=str)
def test_targets_can_be_class_ids(dtype: torch.dtype) -> None:
    logits, targets = random_logits(3, 5), torch.tensor([4, 0, 2])
    found = ask("/v1/loss", {"logits": logits, "targets": targets.to(dtype)}, mapping="sparsemax")
    wanted = evaluate(logits, SPARSEMAX, outputs=["loss", "gradient"], targets=Targets(targets))
    assert same(found["loss"], wanted.loss)
    assert same(found["gradient"], wanted.gradient)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_targets_can_be_distributions(dtype: torch.dtype) -> None:
    logits, targets = random_logits(2, 4), torch.tensor([[0.5, 0.5, 0, 0], [0, 0.25, 0.75, 0]])
    found = ask("/v1/loss", {"logits": logits, "targets": targets.to(dtype)}, mapping="entmax")
    wanted = evaluate(logits, built("entmax"), outputs=["loss"], targets=Targets(targets))
    assert same(found["loss"], wanted.loss)


def test_targets_can_be_in_the_request_too() -> None:
    logits = random_logits(2, 4)
    found = ask("/v1/loss", {"logits": logits}, mapping="softmax", targets=[1, 3])
    wanted = evaluate(
        logits, built("softmax"), outputs=["loss"], targets=Targets(torch.tensor([1, 3]))
    )
    assert same(found["loss"], wanted.loss)


@pytest.mark.parametrize("form", ["jvp", "vjp"])
@pytest.mark.parametrize("is_tensor", [True, False])
def test_products_take_their_vector(form: Any, is_tensor: bool) -> None:
    logits, vector = random_logits(2, 4), random_logits(2, 4).flip(1)
    jacobian: dict[str, Any] = {"form": form}
    tensors = {"logits": logits}
    if is_tensor:
        tensors["jacobian.vector"] = vector
    else:
        jacobian["vector"] = vector.double().tolist()
    found = ask("/v1/map", tensors, mapping="entmax", jacobian=jacobian)
    wanted = evaluate(
        logits, built("entmax"), outputs=["jacobian"], derivatives=Derivatives(form, vector)
    ).jacobian
    assert wanted is not None
    assert same(found["jacobian"], wanted.product)


def test_jacobians_come_in_every_form() -> None:
    logits = random_logits(3, 6)

    def both(form: Any) -> tuple[dict[str, Tensor], Any]:
        found = ask("/v1/map", {"logits": logits}, mapping="sparsemax", jacobian={"form": form})
        wanted = evaluate(
            logits, SPARSEMAX, outputs=["jacobian"], derivatives=Derivatives(form)
        ).jacobian
        return found, wanted

    found, wanted = both("dense")
    assert same(found["jacobian"], wanted.matrix)
    found, wanted = both("factors")
    for part in ("diagonal", "left", "right"):
        assert same(found[f"jacobian_{part}"], getattr(wanted, part))
    found, wanted = both("support")
    sizes = found["jacobian_offsets"].diff().tolist()
    blocks = found["jacobian_values"].split([size * size for size in sizes])
    lists = found["jacobian_indices"].split(sizes)
    for row, (ids, block) in enumerate(zip(lists, blocks, strict=True)):
        assert same(ids, wanted.indices[row])
        assert same(block.reshape(len(ids), len(ids)), wanted.blocks[row])


def test_parameter_gradients_have_a_tensor_each() -> None:
    logits = random_logits(3, 6)
    found = ask("/v1/map", {"logits": logits}, mapping="entmax", outputs=["parameter_gradients"])
    wanted = evaluate(logits, built("entmax"), outputs=["parameter_gradients"]).parameter_gradients
    assert wanted is not None
    assert set(found) == {f"parameter_gradients_{name}" for name in wanted}
    for name, slopes in wanted.items():
        assert same(found[f"parameter_gradients_{name}"], slopes)


@pytest.mark.parametrize("seed", [[7, (1 << 64) - 1], 7])
def test_tokens_are_drawn_from_the_seeds_given(seed: Any) -> None:
    logits = random_logits(2, 50)
    tensors = {"logits": logits, "seed": torch.tensor(seed, dtype=torch.uint64)}
    response = post_binary("/v1/sample", body(tensors, mapping="softmax", samples=9))
    found = answered(response)
    outputs = ["tokens", "token_log_probabilities"]
    wanted = evaluate(
        logits,
        built("softmax"),
        outputs=outputs,  # type: ignore[arg-type]
        draws=Draws(seed=seed, samples=9),
    )
    assert same(found["tokens"], wanted.tokens)
    assert same(found["token_log_probabilities"], wanted.token_log_probabilities)
    assert said(response)["seed"] == seed


def test_without_a_seed_the_servers_own_is_told() -> None:
    tensors = {"logits": random_logits(2, 50)}
    first = post_binary("/v1/sample", body(tensors, mapping="softmax", samples=9))
    seed = said(first)["seed"]
    again = ask("/v1/sample", tensors, mapping="softmax", samples=9, seed=seed)
    assert same(again["tokens"], answered(first)["tokens"])


def test_the_seed_of_a_mapping_beside_that_of_the_draws() -> None:
    tensors = {
        "logits": random_logits(2, 5),
        "mapping.seed": torch.tensor([3, 4]),
        "seed": torch.tensor([1, 2]),
    }
    outputs = ["tokens", "probabilities"]
    found = ask("/v1/sample", tensors, mapping="gumbel_softmax", temperature=0.5, outputs=outputs)
    wanted = evaluate(
        tensors["logits"],
        built({"name": "gumbel_softmax", "seed": [3, 4], "temperature": 0.5}),
        outputs=outputs,  # type: ignore[arg-type]
        draws=Draws(seed=[1, 2]),
    )
    assert same(found["tokens"], wanted.tokens)
    assert same(found["probabilities"], wanted.probabilities)


def test_a_support_that_is_cut_says_so() -> None:
    logits = torch.tensor([[0.0, 0, 0, 0], [9, 0, 0, 0]])
    found = ask(
        "/v1/map", {"logits": logits}, mapping="sparsemax", outputs=["support"], support_limit=2
    )
    assert found["support_offsets"].tolist() == [0, 2, 3]
    assert found["support_indices"].tolist() == [0, 1, 0]
    assert found["support_probabilities"].tolist() == [0.25, 0.25, 1.0]
    assert found["support_mass"].tolist() == [0.5, 1.0]
    assert found["support_truncated"].tolist() == [True, False]
    dtypes = {name.removeprefix("support_"): tensor.dtype for name, tensor in found.items()}
    assert dtypes["offsets"] == torch.int64
    assert dtypes["indices"] == torch.int32


def test_rows_without_an_answer_are_reported() -> None:
    logits = torch.tensor([[0.0, 0.5, 1.0], [torch.nan, 0, 0], [torch.inf, 0, 0]])
    outputs = ["probabilities", "support", "support_size", "tokens"]
    made = body(
        {"logits": logits},
        mapping="sparsemax",
        invalid_rows="report",
        outputs=outputs,
        seed=1,
        samples=2,
    )
    response = post_binary("/v1/sample", made)
    found = answered(response)
    assert said(response)["status"] == ["ok", "nan at class 0", "+inf at class 0"]
    assert found["probabilities"][0].tolist() == [0.0, 0.25, 0.75]
    assert bool(found["probabilities"][1:].isnan().all())
    assert found["support_offsets"].tolist() == [0, 2, 2, 2]
    assert found["tokens"][1:].tolist() == [[-1, -1], [-1, -1]]


def test_rows_without_an_answer_refuse_the_request_unless_reported() -> None:
    made = body({"logits": torch.tensor([[0.0], [torch.nan]])}, mapping="softmax")
    response = post_binary("/v1/map", made)
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/problem+json"
    assert "row 1: nan at class 0" in response.json()["detail"]


def test_the_answer_lies_where_it_can_be_read_in_place() -> None:
    outputs = ["support", "probabilities", "entropy", "support_size"]
    made = body({"logits": random_logits(3, 5)}, mapping="sparsemax", outputs=outputs)
    content = post_binary("/v1/map", made).content
    start = 8 + int.from_bytes(content[:8], "little")
    widths = {"F32": 4, "I32": 4, "I64": 8}
    entries = [entry for name, entry in header(content).items() if name != "__metadata__"]
    assert {entry["dtype"] for entry in entries} == set(widths)
    for entry in entries:
        assert (start + entry["data_offsets"][0]) % widths[entry["dtype"]] == 0


def test_the_answer_names_its_mapping_as_json_does() -> None:
    fields: dict[str, Any] = {"mapping": {"name": "entmax", "alpha": [1.5, 2.0]}}
    response = post_binary("/v1/map", body({"logits": torch.zeros(2, 3)}, **fields))
    answer = post("/v1/map", {**fields, "logits": [[0, 0, 0]] * 2}).json()
    assert said(response) == {"mapping": answer["mapping"], "rows": 2}


def test_rows_of_different_lengths_tell_them() -> None:
    document = {"logits": [[0, 0.5, 1], [7]], "mapping": "sparsemax"}
    response = shared_client().post("/v1/map", json=document, headers={"accept": MEDIA_TYPE})
    found = answered(response)
    assert found["lengths"].tolist() == [3, 1]
    assert found["probabilities"].tolist() == [[0.0, 0.25, 0.75], [1.0, 0.0, 0.0]]
    assert found["probabilities"].dtype == torch.float64


def test_what_else_the_metadata_hold_is_let_be() -> None:
    texts = {"request": '{"mapping": "softmax"}', "format": "pt", "mine": "not JSON"}
    response = post_binary("/v1/map", save({"logits": torch.zeros(2)}, texts))
    assert answered(response)["probabilities"].tolist() == [[0.5, 0.5]]


def test_json_and_safetensors_hold_the_same_numbers() -> None:
    logits = random_logits(4, 33, torch.float64)
    found = answered(post_binary("/v1/map", body({"logits": logits}, mapping="entmax")))
    answer: httpx.Response = post("/v1/map", logits=logits.tolist(), mapping="entmax")
    assert json.loads(answer.content)["probabilities"] == found["probabilities"].tolist()


def test_a_header_of_another_protocol_does_not_move_the_numbers() -> None:
    logits = random_logits(2, 5, torch.float64)
    made = body({"logits": logits}, mapping="softmax")
    response = post_binary("/v1/map", made, **{"inference-header-content-length": "5"})
    wanted = evaluate(logits, built("softmax")).probabilities
    assert same(answered(response)["probabilities"], wanted)
