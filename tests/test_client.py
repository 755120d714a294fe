"""probmap_client against a running server: what goes in, what comes out, what is refused."""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from answers import OUTPUTS, answer
from cases import CASES, Case, built
from client_faces import FACES, opened
from golden_rows import PLAIN, each, printed
from mappings.evaluate import evaluate
from mappings.evaluation import Evaluation
from mappings.jacobian import Form
from mappings.losses import Targets
from mappings.sampling import Draws
from mappings.wanted import Derivatives
from probmap_client import Client, MapResult, ProbmapError, Refused
from safetensors_bodies import random_logits
from server import map_logits, shared_client, shared_server

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


@pytest.fixture(scope="module", params=FACES)
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    with opened(request.param, shared_server().url) as client:
        yield client


@pytest.fixture(scope="module")
def one_client() -> Iterator[Client]:
    with Client(shared_server().url) as client:
        yield client


def assert_same(array: NDArray[Any], wanted: Tensor | None) -> None:
    """The same numbers to the bit, in the same dtype and shape."""
    assert wanted is not None
    exact = wanted.numpy()
    assert (array.dtype, array.shape) == (exact.dtype, exact.shape)
    assert array.tobytes() == exact.tobytes()


def assert_answers(result: MapResult, evaluation: Evaluation) -> None:
    """A result holds, bit for bit, every output of OUTPUTS of an evaluation."""
    for name in OUTPUTS:
        if name != "support":
            assert_same(getattr(result, name), getattr(evaluation, name))
    wanted = evaluation.support
    assert wanted is not None
    for part in ("offsets", "indices", "probabilities", "log_probabilities"):
        assert_same(getattr(result.support, part), getattr(wanted, part))


def is_logged(request_id: str) -> bool:
    """Whether the server's log holds a request; its line is written after the answer."""
    deadline = time.monotonic() + 10
    while request_id not in shared_server().output:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def entmax(alpha: float | list[float], logits: Tensor) -> Evaluation:
    return answer(logits, built({"name": "entmax", "alpha": alpha}))


def test_the_closed_form_of_sparsemax(client: Client) -> None:
    result = client.map([[0, 0.5, 1], [1, None, 3]], "sparsemax", temperature=[1, 4])
    assert result.probabilities.tolist() == [[0, 0.25, 0.75], [0.25, 0, 0.75]]
    assert result.mapping == {"name": "sparsemax", "temperature": [1, 4]}
    assert (result.rows, result.classes, result.lengths) == (2, 3, None)
    assert result.status == ["ok", "ok"]


@each(PLAIN, "probabilities")
def test_the_golden_rows(row: dict[str, Any], one_client: Client) -> None:
    result = one_client.map(row["logits"], row["mapping"])
    error = np.abs(result.probabilities[0] - np.array(row["probabilities"])).max()
    within = 1e-9 if row["mapping"]["name"] == "perturb_max" else 1e-12
    assert error <= within + printed(row)


@each_dtype
def test_every_output_of_every_dtype_is_that_of_the_evaluation(
    dtype: torch.dtype, client: Client
) -> None:
    logits = random_logits(3, 11, dtype)
    logits[1, 4] = -torch.inf
    alpha = [1.3, 1.5, 2.0]
    result = client.map(logits, "entmax", alpha=alpha, outputs=OUTPUTS)
    assert_answers(result, entmax(alpha, logits))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_mapping_answers_as_the_evaluation_does(case: Case, one_client: Client) -> None:
    logits = random_logits(1, 7, torch.float64) / 10
    result = one_client.map(logits, case.request(7))
    assert_same(result.probabilities, evaluate(logits, case.mapping(7)).probabilities)


def test_numbers_are_those_of_the_json_answer(client: Client) -> None:
    logits = random_logits(4, 9, torch.float64)
    fields: dict[str, Any] = {"mapping": "entmax", "outputs": OUTPUTS}
    wanted = map_logits(logits=logits.tolist(), **fields).json()
    result = client.map(logits, **fields)
    for name in ("probabilities", "normalizer", "entropy", "support_size"):
        assert getattr(result, name).tolist() == wanted[name]
    for row, listed in zip(result.support, wanted["support"], strict=True):
        assert row.indices.tolist() == listed["indices"]
        assert row.log_probabilities.tolist() == listed["log_probabilities"]


def test_answers_are_float64_to_float64_integers_and_lists_and_else_float32(
    client: Client,
) -> None:
    for doubles in (np.zeros((1, 3)), np.zeros((1, 3), np.int32), [[0, 1.5]], [[1], [2, 3]]):
        assert client.map(doubles, "softmax").probabilities.dtype == np.float64
    for singles in (np.zeros((1, 3), np.float32), np.zeros((1, 3), np.float16)):
        assert client.map(singles, "softmax").probabilities.dtype == np.float32
    assert client.map([0, 1], "softmax", dtype="float32").probabilities.dtype == np.float32


def test_arrays_of_an_answer_may_be_written_to(client: Client) -> None:
    result = client.map(np.zeros((2, 4), np.float32), "softmax")
    result.probabilities[0] = 7
    assert result.probabilities.tolist() == [[7] * 4, [0.25] * 4]


def test_an_output_that_was_not_asked_for_says_how_to_ask(client: Client) -> None:
    result = client.map([0, 1], "softmax")
    with pytest.raises(AttributeError, match='ask for "entropy" in `outputs`'):
        _ = result.entropy
    with pytest.raises(AttributeError, match='ask for "support" in `outputs`'):
        _ = result.support
    with pytest.raises(AttributeError, match='ask for "parameter_gradients" in `outputs`'):
        _ = result.parameter_gradients


def test_a_support_is_read_by_row_and_as_a_sparse_matrix(client: Client) -> None:
    logits = [[0, 0.5, 1, -3], [0, 0, 0, 0]]
    outputs = ["support", "probabilities"]
    support = (result := client.map(logits, "sparsemax", outputs=outputs)).support
    assert [row.indices.tolist() for row in support] == [[2, 1], [0, 1, 2, 3]]
    assert support[0].probabilities.tolist() == [0.75, 0.25]
    assert support[-1].probabilities.tolist() == [0.25] * 4
    assert (len(support), len(support[0]), support[0].mass) == (2, 2, 1)
    assert not support[0].truncated
    with pytest.raises(IndexError):
        support[2]
    assert support.to_scipy().toarray().tolist() == result.probabilities.tolist()


def test_a_support_that_was_cut_says_so(client: Client) -> None:
    logits = [[0, 0.5, 1], [0, 0, 0]]
    support = client.map(logits, "sparsemax", outputs=["support"], support_limit=2).support
    assert [row.truncated for row in support] == [False, True]
    assert [row.mass for row in support] == [1, pytest.approx(2 / 3)]
    assert support[1].indices.tolist() == [0, 1]


@pytest.mark.parametrize("form", ["dense", "support", "factors", "jvp", "vjp"])
def test_jacobians_in_every_form(form: Form, client: Client) -> None:
    logits, vector = random_logits(2, 5, torch.float64), random_logits(2, 5, torch.float64) + 1
    needs = form in ("jvp", "vjp")
    asked = {"form": form, "vector": vector} if needs else form
    result = client.map(logits, "sparsemax", outputs=["jacobian"], jacobian=asked)
    wanted = evaluate(
        logits,
        built("sparsemax"),
        outputs=["jacobian"],
        derivatives=Derivatives(form, vector if needs else None),
    ).jacobian
    assert wanted is not None
    if form == "factors":
        factors = result.jacobian_factors
        for name in ("diagonal", "left", "right"):
            assert_same(getattr(factors, name), getattr(wanted, name))
        dense = client.map(logits, "sparsemax", jacobian="dense").jacobian
        assert np.abs(factors.dense() - dense).max() < 1e-15
    elif form == "support":
        assert wanted.blocks is not None
        assert wanted.indices is not None
        for row, block in enumerate(result.jacobian_blocks):
            assert block.indices.tolist() == wanted.indices[row].tolist()
            assert_same(block.values, wanted.blocks[row])
    else:
        assert_same(result.jacobian, wanted.matrix if form == "dense" else wanted.product)


def test_gradients_of_parameters(client: Client) -> None:
    result = client.map([0, 0.5, 1], "sparsemax", outputs=["parameter_gradients"])
    found = {name: slopes.tolist() for name, slopes in result.parameter_gradients.items()}
    assert found == {"temperature": [[0, 0.25, -0.25]]}


def test_tokens_are_those_of_their_seeds(client: Client) -> None:
    logits, seeds = random_logits(2, 8, torch.float64), [7, 2**64 - 1]
    result = client.sample(logits, "softmax", samples=6, seed=seeds)
    draws = Draws(seed=seeds, samples=6)
    wanted = evaluate(
        logits, built("softmax"), outputs=("tokens", "token_log_probabilities"), draws=draws
    )
    assert_same(result.tokens, wanted.tokens)
    assert_same(result.token_log_probabilities, wanted.token_log_probabilities)
    assert result.seed == seeds
    again = client.sample(logits, "softmax", samples=6, seed=np.array(seeds, np.uint64))
    assert again.tokens.tolist() == result.tokens.tolist()


def test_a_seed_of_the_servers_own_repeats_the_draw(client: Client) -> None:
    logits = random_logits(3, 50)
    first = client.sample(logits, "softmax", samples=20)
    assert isinstance(first.seed, int)
    again = client.sample(logits, "softmax", samples=20, seed=first.seed)
    assert again.tokens.tolist() == first.tokens.tolist()
    apart = client.sample(logits, "softmax", samples=20, replacement=False).tokens
    assert all(len(set(row)) == 20 for row in apart.tolist())


@pytest.mark.parametrize("kind", [int, np.int32, np.uint64, np.uint8])
def test_losses_of_class_ids(kind: Any, client: Client) -> None:
    logits = random_logits(3, 6, torch.float64)
    ids = [0, 3, 5]
    targets = ids if kind is int else np.array(ids, kind)
    result = client.loss(logits, "sparsemax", targets)
    aims = Targets(torch.tensor(ids), "natural")
    wanted = evaluate(logits, built("sparsemax"), outputs=("loss", "gradient"), targets=aims)
    assert_same(result.loss, wanted.loss)
    assert_same(result.gradient, wanted.gradient)


@pytest.mark.parametrize("targets", [[[0, 1, 0]], [[0.25, 0.25, 0.5]], np.eye(3, dtype=int)[:1]])
def test_losses_of_distributions(targets: Any, client: Client) -> None:
    result = client.loss([[0, 0.5, 1]], "softmax", targets, outputs=["loss", "probabilities"])
    entropy = -(np.asarray(targets, float) * np.log(result.probabilities)).sum()
    assert result.loss[0] == pytest.approx(entropy, abs=1e-14)


def test_an_infinite_loss_is_infinite(client: Client) -> None:
    result = client.loss([[0, 5]], {"name": "sparsegen"}, [0])
    assert result.loss.tolist() == [np.inf]


def test_rows_without_an_answer_are_reported(client: Client) -> None:
    logits = np.array([[0, 0.5, 1], [np.nan, 1, 2], [-np.inf] * 3])
    outputs = ["probabilities", "support"]
    result = client.map(logits, "sparsemax", outputs=outputs, invalid_rows="report")
    assert result.status == ["ok", "nan at class 0", "no unmasked class"]
    assert result.probabilities[0].tolist() == [0, 0.25, 0.75]
    assert np.isnan(result.probabilities[1:]).all()
    assert [len(row) for row in result.support] == [2, 0, 0]


def test_a_batch_of_no_rows(client: Client) -> None:
    batches: list[Any] = [[], np.zeros((0, 5)), torch.zeros(0, 3)]
    for nothing in batches:
        result = client.map(nothing, "softmax", outputs=["probabilities", "support"])
        assert (result.rows, len(result.support)) == (0, 0)
        assert len(result.probabilities) == 0


def test_mappings_and_processors_are_described(client: Client) -> None:
    for found, path in ((client.mappings(), "mappings"), (client.processors(), "processors")):
        wanted = shared_client().get(f"/v1/{path}").json()[path]
        assert list(found) == [entry["name"] for entry in wanted]
        for entry in wanted:
            described = found[entry["name"]]
            assert described.description == entry["description"]
            for parameter, told in zip(described.parameters, entry["parameters"], strict=True):
                assert {name: getattr(parameter, name) for name in told} == told
    assert client.mappings()["entmax"].sparse


def test_a_result_tells_how_long_it_took_and_under_which_id(client: Client) -> None:
    result = client.map([0, 1], "softmax")
    assert set(result.timing) == {"decode", "queue", "compute", "encode"}
    assert all(0 <= seconds < 60 for seconds in result.timing.values())
    assert is_logged(result.request_id)


REFUSED: list[tuple[dict[str, Any], int, str, int | None, str]] = [
    ({"mapping": "entmax", "alpha": 20}, 422, "invalid_request", None, "mapping.alpha should be"),
    ({"mapping": "entmax", "alpha": [2, 20]}, 422, "invalid_request", 1, "mapping.alpha[1] should"),
    ({"mapping": "entmax", "alpha": [2, 2, 2]}, 422, "invalid_parameter", None, "3 values for 2"),
    ({"mapping": "entmax", "alhpa": [2, 2]}, 422, "invalid_request", None, "did you mean alpha"),
    ({"mapping": "softmox"}, 404, "unknown_name", None, "softmox"),
    ({"mapping": "softmax", "outputs": ["p"]}, 422, "invalid_request", None, "outputs"),
    ({"mapping": "softmax", "processors": ["top_k"]}, 422, "invalid_request", None, "processors"),
]


@pytest.mark.parametrize(("fields", "status", "code", "row", "message"), REFUSED)
def test_what_is_wrong_is_an_exception_with_code_and_message(
    client: Client, fields: dict[str, Any], status: int, code: str, row: int | None, message: str
) -> None:
    with pytest.raises(Refused) as refused:
        client.map([[0, 1], [2, 3]], **fields)
    error = refused.value
    assert (error.status, error.code, error.row) == (status, code, row)
    assert message in error.detail == str(error)
    assert is_logged(error.request_id)


@pytest.mark.parametrize("processors", ["top_k", {"name": "top_k", "k": 2}])
def test_a_chain_that_is_no_list_is_told(client: Client, processors: Any) -> None:
    with pytest.raises(Refused, match="processors should be a"):
        client.map([0, 1], "softmax", processors=processors)


def test_a_call_that_takes_too_long_is_given_up(client: Client) -> None:
    with pytest.raises(TimeoutError):
        client.map(random_logits(100, 20_000), "perturb_max", outputs=["entropy"], timeout=0.05)


def test_a_bad_row_is_named(client: Client) -> None:
    with pytest.raises(ProbmapError, match="row 1: nan at class 2") as refused:
        client.map(np.array([[0, 1, 2], [0, 1, np.nan]]), "softmax")
    assert (refused.value.code, refused.value.row) == ("invalid_row", 1)
    with pytest.raises(Refused) as target:
        client.loss([[0, 1], [0, 1]], "softmax", [1, 2])
    assert target.value.row == 1
    assert target.value.problems[0].loc == ("targets", 1)
