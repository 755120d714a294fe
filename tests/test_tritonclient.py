"""The unmodified tritonclient, sync and asyncio, against a running server."""

import asyncio
import gc
import re
import warnings
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import tritonclient.http
import tritonclient.http.aio
from tritonclient.http import InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException

from answers import present
from cases import built
from mappings.evaluate import evaluate
from mappings.evaluation import Output
from mappings.registry import MAPPINGS
from oip_bodies import close, rows
from server import ROOT, RunningServer, running_server, shared_client

Call = Callable[[Any], Any]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server() as started:
        yield started


@pytest.fixture(params=["sync", "aio"])
def ask(server: RunningServer, request: pytest.FixtureRequest) -> Callable[[Call], Any]:
    """Calls a client's method, whichever client it is."""
    address = server.url.removeprefix("http://")
    if request.param == "sync":

        def sync(call: Call) -> Any:
            with tritonclient.http.InferenceServerClient(address) as client:
                return call(client)

        return sync

    async def once(call: Callable[[Any], Awaitable[Any]]) -> Any:
        async with tritonclient.http.aio.InferenceServerClient(address) as client:
            return await call(client)

    def ran(call: Call) -> Any:
        with warnings.catch_warnings():
            # It drops some answers unread, and aiohttp says so when they are collected.
            warnings.filterwarnings("ignore", "Unclosed connection", ResourceWarning)
            answer = asyncio.run(once(call))
            gc.collect()
            return answer

    return ran


def tensor(name: str, array: Any, *, binary: bool = True) -> InferInput:
    names = {"float16": "FP16", "bfloat16": "BF16", "float32": "FP32", "float64": "FP64"}
    datatype = names.get(array.dtype.name, array.dtype.name.upper())
    return InferInput(name, list(array.shape), datatype).set_data_from_numpy(array, binary)


ROWS = rows(3, 50)
WANTED = present(evaluate(torch.from_numpy(ROWS), built("sparsemax")).probabilities).numpy()

Ask = Callable[[Call], Any]


def infer(*arguments: Any, **options: Any) -> Call:
    """A call of a client's infer."""
    return lambda client: client.infer(*arguments, **options)


def test_the_server_is_live_and_ready(ask: Ask) -> None:
    assert ask(lambda client: client.is_server_live())
    assert ask(lambda client: client.is_server_ready())


def test_the_server_tells_what_it_can(ask: Ask) -> None:
    told = ask(lambda client: client.get_server_metadata())
    assert told["name"] == "probmap"
    assert told["extensions"] == [
        "binary_tensor_data",
        "classification",
        "parameters",
        "statistics",
        "model_configuration",
        "model_repository",
    ]


@pytest.mark.parametrize("version", ["", "1"])
@pytest.mark.parametrize("name", MAPPINGS)
def test_every_mapping_is_a_model(ask: Ask, name: str, version: str) -> None:
    assert ask(lambda client: client.is_model_ready(name, version))
    told = ask(lambda client: client.get_model_metadata(name, version))
    assert told["name"] == name
    assert told["versions"] == ["1"]
    inputs = {entry["name"]: entry for entry in told["inputs"]}
    assert inputs["logits"] == {"name": "logits", "datatype": "FP32", "shape": [-1, -1]}
    assert set(MAPPINGS[name].per_row_fields()) <= set(inputs)
    configured = ask(lambda client: client.get_model_config(name, version))
    assert configured["name"] == name
    assert [entry["name"] for entry in configured["input"]] == list(inputs)
    fields = set(MAPPINGS[name].model_fields) - {"name"}
    assert set(configured["parameters"]) == fields


@pytest.mark.parametrize(("name", "version"), [("nothing", ""), ("softmax", "2"), ("ŝoftmax", "")])
def test_a_model_that_is_not_there_is_not_ready_and_named_in_the_error(
    ask: Ask, name: str, version: str
) -> None:
    assert not ask(lambda client: client.is_model_ready(name, version))
    calls: list[Call] = [
        lambda client: client.get_model_metadata(name, version),
        lambda client: client.get_model_config(name, version),
        lambda client: client.get_inference_statistics(name, version),
        infer(name, [tensor("logits", ROWS)], version),
    ]
    for call in calls:
        with pytest.raises(InferenceServerException) as caught:
            ask(call)
        assert caught.value.status() == "404"
        assert name in caught.value.message()


def test_the_repository_lists_every_mapping(ask: Ask) -> None:
    listed = ask(lambda client: client.get_model_repository_index())
    assert [entry["name"] for entry in listed] == list(MAPPINGS)
    assert {entry["state"] for entry in listed} == {"READY"}
    assert {entry["version"] for entry in listed} == {"1"}


COMPRESSIONS = [None, "gzip", "deflate"]


@pytest.mark.parametrize("answered", COMPRESSIONS)
@pytest.mark.parametrize("sent", COMPRESSIONS)
def test_tensors_are_compressed_both_ways(ask: Ask, sent: str | None, answered: str | None) -> None:
    result = ask(
        infer(
            "sparsemax",
            [tensor("logits", ROWS)],
            request_compression_algorithm=sent,
            response_compression_algorithm=answered,
        )
    )
    assert result.as_numpy("probabilities").tobytes() == WANTED.tobytes()


@pytest.mark.parametrize("answered", [True, False], ids=["binary-out", "json-out"])
@pytest.mark.parametrize("sent", [True, False], ids=["binary-in", "json-in"])
def test_tensors_go_as_binary_or_as_json(ask: Ask, sent: bool, answered: bool) -> None:
    result = ask(
        infer(
            "sparsemax",
            [tensor("logits", ROWS, binary=sent)],
            outputs=[
                InferRequestedOutput("probabilities", binary_data=answered),
                InferRequestedOutput("support_size", binary_data=not answered),
            ],
            request_id="ïd 7 ✓",
        )
    )
    assert result.as_numpy("probabilities").tobytes() == WANTED.tobytes()
    assert result.as_numpy("support_size").tolist() == (WANTED > 0).sum(-1).tolist()
    told = result.get_response()
    assert told["id"] == "ïd 7 ✓"
    assert (told["model_name"], told["model_version"]) == ("sparsemax", "1")
    assert [entry["name"] for entry in told["outputs"]] == ["probabilities", "support_size"]
    assert ("data" in result.get_output("probabilities")) is not answered


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_every_datatype_of_logits_is_read(ask: Ask, dtype: Any) -> None:
    array = ROWS.astype(dtype)
    result = ask(infer("entmax", [tensor("logits", array)]))
    exact = torch.from_numpy(array.astype(np.float64))
    if dtype is not np.float64:
        # What the 16 or 32 bits say, computed as 32 bits are.
        exact = exact.float()
    wanted = present(evaluate(exact, built("entmax")).probabilities).numpy()
    assert result.as_numpy("probabilities").tobytes() == wanted.tobytes()
    datatype = result.get_output("probabilities")["datatype"]
    assert datatype == ("FP64" if dtype is np.float64 else "FP32")


def test_inputs_give_each_row_its_own_parameters(ask: Ask) -> None:
    alpha = np.array([[1.0], [1.5], [2.0]])
    temperature = np.array([0.5, 1.0, 2.0], np.float32)
    result = ask(
        infer(
            "entmax",
            [tensor("alpha", alpha), tensor("logits", ROWS), tensor("temperature", temperature)],
        )
    )
    mapping = built({"name": "entmax", "alpha": [1.0, 1.5, 2.0], "temperature": [0.5, 1.0, 2.0]})
    wanted = present(evaluate(torch.from_numpy(ROWS), mapping).probabilities).numpy()
    assert result.as_numpy("probabilities").tobytes() == wanted.tobytes()


def test_parameters_hold_for_every_row(ask: Ask) -> None:
    result = ask(
        infer("entmax", [tensor("logits", ROWS)], parameters={"alpha": 2, "temperature": 0.5})
    )
    mapping = built({"name": "entmax", "alpha": 2.0, "temperature": 0.5})
    wanted = present(evaluate(torch.from_numpy(ROWS), mapping).probabilities).numpy()
    assert result.as_numpy("probabilities").tobytes() == wanted.tobytes()


def test_classification_lists_the_largest(ask: Ask) -> None:
    array = np.array([[0.0, 0.25, 0.5], [5.0, 0.0, 0.0]], np.float32)
    for binary in (True, False):
        wish = InferRequestedOutput("probabilities", binary_data=binary, class_count=2)
        result = ask(infer("sparsemax", [tensor("logits", array)], outputs=[wish]))
        texts = [
            [text if isinstance(text, str) else text.decode() for text in row]
            for row in result.as_numpy("probabilities").tolist()
        ]
        pairs = [[text.partition(":") for text in row] for row in texts]
        assert [[int(index) for _, _, index in row] for row in pairs] == [[2, 1], [0, 1]]
        values = [[float(value) for value, _, _ in row] for row in pairs]
        close(np.array(values), [[0.75 - 1 / 6, 1 / 3], [1.0, 0.0]], 1e-6)


def test_tokens_are_drawn_and_their_seed_repeats_them(ask: Ask) -> None:
    inputs = [tensor("logits", ROWS)]
    names = ("tokens", "token_log_probabilities", "probabilities")
    wishes = [InferRequestedOutput(name) for name in names]
    drawn = ask(infer("softmax", inputs, outputs=wishes, parameters={"samples": 4, "top_k": 5}))
    seed = drawn.get_response()["parameters"]["seed"]
    tokens = drawn.as_numpy("tokens")
    assert tokens.shape == (3, 4)
    again = ask(
        infer(
            "softmax",
            inputs,
            outputs=wishes,
            parameters={"samples": 4, "top_k": 5, "seed": seed},
        )
    )
    assert again.as_numpy("tokens").tolist() == tokens.tolist()
    chances = np.take_along_axis(drawn.as_numpy("probabilities"), tokens, axis=-1)
    assert (chances > 0).all()
    close(np.exp(drawn.as_numpy("token_log_probabilities")), chances)


def test_a_seed_a_row_is_an_unsigned_input(ask: Ask) -> None:
    seeds = np.array([2**64 - 1, 0, 2**63], np.uint64)
    result = ask(
        infer(
            "softmax",
            [tensor("logits", ROWS), tensor("seed", seeds)],
            outputs=[InferRequestedOutput("tokens")],
            parameters={"samples": 8},
        )
    )
    for row, seed in enumerate(seeds.tolist()):
        alone = ask(
            infer(
                "softmax",
                [tensor("logits", ROWS[row : row + 1])],
                outputs=[InferRequestedOutput("tokens")],
                parameters={"samples": 8, "seed": seed},
            )
        )
        assert alone.as_numpy("tokens")[0].tolist() == result.as_numpy("tokens")[row].tolist()


def test_an_empty_batch_has_an_empty_answer(ask: Ask) -> None:
    empty = np.zeros((0, 7), np.float32)
    result = ask(infer("softmax", [tensor("logits", empty)]))
    assert result.as_numpy("probabilities").shape == (0, 7)


@pytest.mark.parametrize(
    ("parameters", "status", "words"),
    [
        ({"alpha": 99.0}, "422", ["alpha", "16"]),
        ({"alpha": "1.5"}, "422", ["alpha", "number"]),
        ({"alhpa": 1.5}, "422", ["alhpa", "did you mean alpha"]),
        ({"top_p": 1.5}, "422", ["top_p", "1"]),
        ({"top_k": 0, "temperature": 0.5}, "422", ["top_k", "1"]),
    ],
    ids=str,
)
def test_an_error_says_what_is_wrong(
    ask: Ask, parameters: dict[str, Any], status: str, words: list[str]
) -> None:
    with pytest.raises(InferenceServerException) as caught:
        ask(infer("entmax", [tensor("logits", ROWS)], parameters=parameters))
    assert caught.value.status() == status
    for word in words:
        assert word in caught.value.message()
    assert "processors" not in caught.value.message()


def test_a_row_without_an_answer_is_named(ask: Ask) -> None:
    array = ROWS.copy()
    array[1, 7] = np.nan
    with pytest.raises(InferenceServerException, match="row 1: nan at class 7"):
        ask(infer("softmax", [tensor("logits", array)]))


def test_time_that_is_up_is_an_error_and_time_enough_is_none(ask: Ask) -> None:
    big = [tensor("logits", rows(12, 20_000))]
    with pytest.raises(InferenceServerException) as caught:
        ask(infer("perturb_max", big, timeout=1000))
    assert caught.value.status() == "504"
    small = [tensor("logits", ROWS)]
    result = ask(infer("softmax", small, timeout=60_000_000))
    assert result.as_numpy("probabilities").shape == ROWS.shape


def test_what_a_server_without_state_need_not_know_is_ignored(ask: Ask) -> None:
    result = ask(
        infer(
            "sparsemax",
            [tensor("logits", ROWS)],
            sequence_id=7,
            sequence_start=True,
            sequence_end=True,
            priority=1,
        )
    )
    assert result.as_numpy("probabilities").tobytes() == WANTED.tobytes()


def test_requests_are_counted_and_timed(ask: Ask) -> None:
    def counted() -> dict[str, Any]:
        told = ask(lambda client: client.get_inference_statistics("r_softmax", "1"))
        (found,) = told["model_stats"]
        assert isinstance(found, dict)
        return found

    before = counted()
    for _ in range(2):
        ask(infer("r_softmax", [tensor("logits", ROWS)]))
    for bad in ({"r": 7.0}, {"invalid_rows": "report", "support_limit": 0}):
        with pytest.raises(InferenceServerException):
            ask(infer("r_softmax", [tensor("logits", ROWS)], parameters=bad))
    after = counted()
    assert (after["name"], after["version"]) == ("r_softmax", "1")
    assert after["inference_count"] - before["inference_count"] == 2 * len(ROWS)
    assert after["execution_count"] - before["execution_count"] == 2
    assert after["last_inference"] > 1_600_000_000_000
    stages = {
        name: {key: value[key] - before["inference_stats"][name][key] for key in value}
        for name, value in after["inference_stats"].items()
    }
    assert stages["success"]["count"] == 2
    assert stages["fail"]["count"] == 2
    assert stages["fail"]["ns"] > 0
    parts = ("queue", "compute_input", "compute_infer", "compute_output")
    assert [stages[name]["count"] for name in parts] == [2] * 4
    spent = [stages[name]["ns"] for name in parts]
    assert min(spent) > 0
    assert sum(spent) <= stages["success"]["ns"]
    sizes = {entry["batch_size"]: entry for entry in after["batch_stats"]}
    assert sizes[len(ROWS)]["compute_infer"]["ns"] > 0


def test_statistics_list_every_mapping(ask: Ask) -> None:
    told = ask(lambda client: client.get_inference_statistics())
    assert [entry["name"] for entry in told["model_stats"]] == list(MAPPINGS)


def test_many_callers_each_get_their_own_rows_and_outputs(server: RunningServer) -> None:
    """Callers of one batch key differ in rows and parameters, and in what they want answered."""
    dice = np.random.default_rng(5)
    names: list[Output] = ["probabilities", "log_probabilities", "entropy", "support_size"]
    asked = [
        (
            rows(int(dice.integers(1, 5)), 40, seed=number),
            dice.permutation(names)[: int(dice.integers(1, 4))].tolist(),
            float(dice.uniform(1.1, 3)),
        )
        for number in range(120)
    ]

    async def one(client: Any, array: Any, wishes: list[str], alpha: float) -> Any:
        outputs = [InferRequestedOutput(wish) for wish in wishes]
        inputs = [tensor("logits", array)]
        return await client.infer("entmax", inputs, outputs=outputs, parameters={"alpha": alpha})

    async def together() -> list[Any]:
        address = server.url.removeprefix("http://")
        async with tritonclient.http.aio.InferenceServerClient(address) as client:
            return await asyncio.gather(*(one(client, *each) for each in asked))

    for (array, wishes, alpha), result in zip(asked, asyncio.run(together()), strict=True):
        mapping = built({"name": "entmax", "alpha": alpha})
        wanted = evaluate(torch.from_numpy(array), mapping, outputs=names)
        assert [output["name"] for output in result.get_response()["outputs"]] == wishes
        for wish in wishes:
            expected = present(getattr(wanted, wish)).numpy()
            assert result.as_numpy(wish).tobytes() == expected.tobytes(), wish


def test_the_clients_own_concurrency_works(server: RunningServer) -> None:
    address = server.url.removeprefix("http://")
    with tritonclient.http.InferenceServerClient(address, concurrency=4) as client:
        waiting = [client.async_infer("sparsemax", [tensor("logits", ROWS)]) for _ in range(16)]
        for each in waiting:
            assert each.get_result().as_numpy("probabilities").tobytes() == WANTED.tobytes()


def test_models_cannot_be_loaded(ask: Ask) -> None:
    calls: list[Call] = [
        lambda client: client.load_model("softmax"),
        lambda client: client.unload_model("softmax"),
    ]
    for call in calls:
        with pytest.raises(InferenceServerException) as caught:
            ask(call)
        assert caught.value.status() == "404"


def test_a_client_made_request_body_can_be_sent_and_its_answer_parsed() -> None:
    aio = tritonclient.http.aio.InferenceServerClient
    content, length = aio.generate_request_body([tensor("logits", ROWS)])
    response = shared_client().post(
        "/v2/models/sparsemax/infer",
        content=content,
        headers={"Inference-Header-Content-Length": str(length)},
    )
    header = int(response.headers["Inference-Header-Content-Length"])
    result = aio.parse_response_body(response.content, header_length=header)
    assert result.as_numpy("probabilities").tobytes() == WANTED.tobytes()


README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLE = re.compile(r"<!-- tritonclient -->\n```python\n(.*?)```\n\n```text\n(.*?)```", re.S)


def test_the_readmes_example_prints_what_it_says(
    server: RunningServer, capsys: pytest.CaptureFixture[str]
) -> None:
    (found,) = EXAMPLE.findall(README)
    program, printed = found
    here = server.url.removeprefix("http://")
    exec(program.replace("127.0.0.1:8000", here), {})
    assert capsys.readouterr().out == printed
