"""What the Open Inference Protocol answers: bit for bit what the mapping called in-process does."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from answers import present
from cases import CASES, Case, built
from mappings.evaluate import evaluate
from mappings.evaluation import Evaluation, Output
from mappings.processors.min_p import MinP
from mappings.processors.temperature import Temperature
from mappings.processors.top_k import TopK
from mappings.processors.top_p import TopP
from mappings.registry import MAPPINGS
from mappings.sampling import Draws
from oip_bodies import HEADER, Sent, binary, body, close, infer, logits, outputs, parsed, rows
from server import shared_client
from service.rooms import Rooms
from service.settings import Settings
from service.wire.oip_decode import decode
from service.wire.shared_memory import Regions

ROWS = rows(4, 33)
DENSE: tuple[Output, ...] = (
    "probabilities",
    "log_probabilities",
    "normalizer",
    "entropy",
    "support_size",
)
SUPPORT = ("support_offsets", "support_indices", "support_probabilities")
SMALL = np.array([[0.0, 0.25, 0.5], [1.0, -np.inf, 3.0]], np.float32)


def of(evaluation: Evaluation, name: str) -> Tensor:
    """An output's tensor, as the mapping called in-process gives it."""
    if name.startswith("support_") and name != "support_size":
        assert evaluation.support is not None
        found = getattr(evaluation.support, name.removeprefix("support_"))
    else:
        found = present(getattr(evaluation, name))
    assert isinstance(found, Tensor)
    return found


def asked(case: Case, classes: int) -> tuple[list[Sent], dict[str, Any]]:
    """A case's parameters as the protocol takes them: single values, and lists as inputs."""
    given = case.request(classes)
    name = given.pop("name")
    inputs = [Sent(key, np.array(value)) for key, value in given.items() if isinstance(value, list)]
    assert {one.name for one in inputs} <= set(MAPPINGS[name].per_class_fields())
    return inputs, {key: value for key, value in given.items() if not isinstance(value, list)}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_output_is_that_of_the_mapping_to_the_bit(case: Case) -> None:
    array = ROWS / 8 if case.name == "margin_softmax" else ROWS
    inputs, parameters = asked(case, array.shape[1])
    names = (*DENSE, *SUPPORT)
    response = infer(
        case.name,
        logits(array),
        *inputs,
        outputs=outputs(*names),
        parameters={"binary_data_output": True, **parameters},
    )
    _, found = parsed(response)
    wanted = evaluate(
        torch.from_numpy(array), case.mapping(array.shape[1]), outputs=(*DENSE, "support")
    )
    for name in names:
        tensor = of(wanted, name)
        assert found[name].shape == tuple(tensor.shape), name
        assert found[name].tobytes() == tensor.contiguous().numpy().tobytes(), name


@pytest.mark.parametrize("padding", range(9))
@pytest.mark.parametrize("datatype", ["FP16", "FP32", "FP64"])
def test_tensors_may_begin_anywhere(datatype: str, padding: int) -> None:
    kinds = {"FP16": np.float16, "FP32": np.float32, "FP64": np.float64}
    array = ROWS.astype(kinds[datatype])
    alpha = np.array([1.25, 1.5, 2.0, 4.0])
    flags = np.array([1, 2, 3, 4], np.int8)
    for inputs in (
        [logits(array), Sent("alpha", alpha)],
        [Sent("alpha", alpha), logits(array)],
        [Sent("alpha", alpha), Sent("top_k", flags), logits(array)],
    ):
        _, found = parsed(infer("entmax", *inputs, padding=padding, **binary("probabilities")))
        mapping = built({"name": "entmax", "alpha": alpha.tolist()})
        steps = [TopK(k=flags.tolist())] if len(inputs) == 3 else []
        wanted = evaluate(torch.from_numpy(array), mapping, processors=steps)
        expected = present(wanted.probabilities).numpy()
        assert found["probabilities"].tobytes() == expected.tobytes()


def test_bf16_is_read_as_it_is() -> None:
    exact = torch.from_numpy(ROWS).bfloat16()
    raw = exact.view(torch.int16).numpy()
    for padding in range(3):
        sent = Sent("logits", raw, "BF16")
        _, found = parsed(infer("sparsemax", sent, padding=padding, **binary("probabilities")))
        wanted = present(evaluate(exact, built("sparsemax")).probabilities).numpy()
        assert found["probabilities"].tobytes() == wanted.tobytes()


@pytest.mark.parametrize("nested", [False, True], ids=["flat", "rows"])
def test_json_data_is_flat_or_in_rows(nested: bool) -> None:
    data = ROWS.tolist() if nested else ROWS.flatten().tolist()
    entry = {"name": "logits", "datatype": "FP32", "shape": list(ROWS.shape), "data": data}
    response = shared_client().post("/v2/models/softmax/infer", json={"inputs": [entry]})
    head, found = parsed(response)
    assert HEADER not in response.headers
    assert response.headers["content-type"] == "application/json"
    wanted = present(evaluate(torch.from_numpy(ROWS), built("softmax")).probabilities).numpy()
    assert found["probabilities"].tobytes() == wanted.tobytes()
    assert "id" not in head
    assert head["outputs"][0]["datatype"] == "FP32"


def test_large_json_data_is_read() -> None:
    array = rows(2, 30_000)
    response = infer("softmax", logits(array, binary=False), **binary("probabilities"))
    _, found = parsed(response)
    wanted = present(evaluate(torch.from_numpy(array), built("softmax")).probabilities).numpy()
    assert found["probabilities"].tobytes() == wanted.tobytes()


def test_null_masks_a_class_in_json_and_minus_infinity_in_binary() -> None:
    entry = {"name": "logits", "datatype": "FP32", "shape": [2, 3]}
    entry["data"] = [[0, 0.25, 0.5], [1, None, 3]]
    response = shared_client().post("/v2/models/softmax/infer", json={"inputs": [entry]})
    _, from_json = parsed(response)
    _, from_binary = parsed(infer("softmax", logits(SMALL)))
    assert from_json["probabilities"].tolist() == from_binary["probabilities"].tolist()
    assert from_json["probabilities"][1, 1] == 0


def test_numbers_without_a_value_are_null_in_json() -> None:
    response = infer("softmax", logits(SMALL), outputs=outputs("log_probabilities"))
    data = response.json()["outputs"][0]["data"]
    assert data[4] is None
    assert all(isinstance(value, float) for place, value in enumerate(data) if place != 4)
    _, found = parsed(infer("softmax", logits(SMALL), **binary("log_probabilities")))
    assert found["log_probabilities"][1, 1] == -np.inf


def test_json_numbers_round_trip() -> None:
    wishes = outputs("probabilities", "log_probabilities", "normalizer")
    _, text = parsed(infer("softmax", logits(ROWS), outputs=wishes))
    _, raw = parsed(infer("softmax", logits(ROWS), **binary(*text)))
    for name in text:
        assert text[name].tobytes() == raw[name].tobytes()


def test_some_inputs_are_binary_and_some_json_and_so_are_outputs() -> None:
    alpha = Sent("alpha", np.array([1.0, 1.5, 2.0, 3.0]), binary=False)
    temperature = Sent("temperature", np.array([[1.0], [2.0], [1.0], [0.5]]))
    wishes = [
        {"name": "probabilities", "parameters": {"binary_data": True}},
        {"name": "entropy", "parameters": {"binary_data": False}},
        {"name": "support_size"},
    ]
    response = infer("entmax", alpha, logits(ROWS), temperature, outputs=wishes)
    head, found = parsed(response)
    assert ["data" in output for output in head["outputs"]] == [False, True, True]
    assert response.headers["content-type"] == "application/octet-stream"
    mapping = built(
        {
            "name": "entmax",
            "alpha": [1.0, 1.5, 2.0, 3.0],
            "temperature": [1.0, 2.0, 1.0, 0.5],
        }
    )
    wanted = evaluate(torch.from_numpy(ROWS), mapping, outputs=DENSE)
    for name in ("probabilities", "entropy", "support_size"):
        assert found[name].tobytes() == of(wanted, name).numpy().tobytes()


@pytest.mark.parametrize(
    ("whole", "one", "is_binary"),
    [(True, None, True), (True, False, False), (False, True, True), (None, None, False)],
)
def test_an_output_says_for_itself_whether_it_is_binary(
    whole: bool | None, one: bool | None, is_binary: bool
) -> None:
    fields: dict[str, Any] = {"outputs": [{"name": "probabilities"}]}
    if one is not None:
        fields["outputs"][0]["parameters"] = {"binary_data": one}
    if whole is not None:
        fields["parameters"] = {"binary_data_output": whole}
    head, _ = parsed(infer("softmax", logits(ROWS), **fields))
    assert ("data" not in head["outputs"][0]) is is_binary


CHAINS: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "temperature first": (
        {"top_p": 0.8, "temperature": 2.5},
        [Temperature(value=2.5), TopP(p=0.8)],
    ),
    "all four": (
        {"min_p": 0.05, "top_p": 0.9, "top_k": 9, "temperature": 1.5},
        [Temperature(value=1.5), TopK(k=9), TopP(p=0.9), MinP(ratio=0.05)],
    ),
    "one": ({"min_p": 0.2}, [MinP(ratio=0.2)]),
}


@pytest.mark.parametrize("name", CHAINS)
def test_processors_are_applied_in_one_order(name: str) -> None:
    parameters, steps = CHAINS[name]
    response = infer("sparsemax", logits(ROWS), parameters=parameters, outputs=outputs("entropy"))
    _, found = parsed(response)
    wanted = evaluate(
        torch.from_numpy(ROWS), built("sparsemax"), processors=steps, outputs=["entropy"]
    )
    assert found["entropy"].tobytes() == of(wanted, "entropy").numpy().tobytes()


def test_processors_take_one_value_a_row() -> None:
    k, p = np.array([1, 2, 3, 40], np.int32), np.array([[0.5], [1.0], [0.9], [0.8]], np.float32)
    response = infer("softmax", logits(ROWS), Sent("top_k", k), Sent("top_p", p))
    _, found = parsed(response)
    steps = [TopK(k=k.tolist()), TopP(p=p.flatten().tolist())]
    wanted = evaluate(torch.from_numpy(ROWS), built("softmax"), processors=steps)
    assert found["probabilities"].tobytes() == of(wanted, "probabilities").numpy().tobytes()


def test_a_temperature_alone_is_the_mappings_and_may_be_its_limit() -> None:
    _, found = parsed(infer("softmax", logits(SMALL), parameters={"temperature": 0}))
    assert found["probabilities"].tolist() == [[0, 0, 1], [0, 0, 1]]
    response = infer("softmax", logits(SMALL), parameters={"temperature": 0, "top_k": 2})
    assert response.status_code == 422
    assert response.json()["errors"][0]["loc"] == ["temperature"]


@pytest.mark.parametrize("parameters", [{"samples": 3}, {"seed": 7}, {"seed": 7, "samples": 3}])
def test_samples_or_a_seed_ask_for_tokens(parameters: dict[str, Any]) -> None:
    head, found = parsed(infer("softmax", logits(ROWS), parameters=parameters))
    assert set(found) == {"probabilities", "tokens", "token_log_probabilities"}
    draws = Draws(seed=head["parameters"]["seed"], samples=parameters.get("samples", 1))
    wanted = evaluate(
        torch.from_numpy(ROWS),
        built("softmax"),
        outputs=("tokens", "token_log_probabilities"),
        draws=draws,
    )
    for name in ("tokens", "token_log_probabilities"):
        assert found[name].tolist() == of(wanted, name).tolist()
    assert head["outputs"][1]["datatype"] == "INT64"


def test_a_mapping_with_a_seed_of_its_own_takes_it() -> None:
    parameters = {"seed": 11, "temperature": 0.5}
    _, found = parsed(infer("gumbel_softmax", logits(ROWS), parameters=parameters))
    assert set(found) == {"probabilities"}
    mapping = built({"name": "gumbel_softmax", "seed": 11, "temperature": 0.5})
    wanted = evaluate(torch.from_numpy(ROWS), mapping)
    assert found["probabilities"].tobytes() == of(wanted, "probabilities").numpy().tobytes()
    response = infer(
        "gumbel_softmax", logits(ROWS), parameters=parameters, outputs=outputs("tokens")
    )
    head, again = parsed(response)
    assert head["parameters"]["seed"] == 11
    assert again["tokens"].shape == (4, 1)


def test_weights_are_one_a_class_or_rows_of_them() -> None:
    one = np.array([1.0, 0.5, 2.0])
    for weights in (one, np.array([one, one[::-1]])):
        _, found = parsed(infer("weighted_softmax", logits(SMALL), Sent("weights", weights)))
        raised = np.exp(SMALL.astype(np.float64)) * weights
        close(found["probabilities"], raised / raised.sum(-1, keepdims=True))


def test_bad_rows_can_be_reported() -> None:
    array = ROWS.copy()
    array[2, 5] = np.nan
    response = infer(
        "softmax",
        logits(array),
        outputs=[
            *outputs("probabilities", "status", "support_size"),
            {"name": "tokens"},
        ],
        parameters={"invalid_rows": "report", "seed": 1, "binary_data_output": True},
    )
    _, found = parsed(response)
    assert found["status"].tolist() == ["ok", "ok", "nan at class 5", "ok"]
    assert np.isnan(found["probabilities"][2]).all()
    assert found["tokens"][2].tolist() == [-1]
    good = [0, 1, 3]
    wanted = present(evaluate(torch.from_numpy(ROWS), built("softmax")).probabilities).numpy()
    assert found["probabilities"][good].tobytes() == wanted[good].tobytes()


@pytest.mark.parametrize("is_binary", [True, False])
def test_classification_breaks_ties_by_the_lower_class_id(is_binary: bool) -> None:
    array = np.array([[1, 2, 2, 2, 3], [0, 0, 0, 0, 0], [5, 4, 3, 2, 1]], np.float32)
    for count in (1, 2, 3, 5, 9):
        wish = {"classification": count, "binary_data": is_binary}
        response = infer(
            "softmax", logits(array), outputs=[{"name": "probabilities", "parameters": wish}]
        )
        head, found = parsed(response)
        shown = min(count, 5)
        assert head["outputs"][0]["datatype"] == "BYTES"
        assert found["probabilities"].shape == (3, shown)
        order = [[4, 1, 2, 3, 0], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4]]
        chances = np.exp(array) / np.exp(array).sum(-1, keepdims=True)
        for row, texts in enumerate(found["probabilities"].tolist()):
            pairs = [text.split(":") for text in texts]
            assert [int(index) for _, index in pairs] == order[row][:shown]
            values = np.array([float(value) for value, _ in pairs])
            close(values, chances[row][order[row][:shown]])


def test_classification_of_a_vocabulary_is_that_of_its_probabilities() -> None:
    array = np.round(rows(2, 151_936), 1)
    wish = {"name": "probabilities", "parameters": {"classification": 50}}
    _, texts = parsed(infer("softmax", logits(array), outputs=[wish]))
    _, found = parsed(infer("softmax", logits(array), **binary("probabilities")))
    order = np.argsort(-found["probabilities"], axis=-1, kind="stable")[:, :50]
    for row, places in enumerate(order):
        pairs = [text.split(":") for text in texts["probabilities"][row]]
        assert [int(index) for _, index in pairs] == places.tolist()
        values = np.array([value for value, _ in pairs], np.float32)
        assert values.tolist() == found["probabilities"][row, places].tolist()


def needs_nothing(name: str) -> bool:
    fields = MAPPINGS[name].model_fields
    return not any(field.is_required() for field in fields.values())


@pytest.mark.parametrize("name", MAPPINGS)
def test_one_row_of_float32_is_a_body(name: str) -> None:
    content = ROWS[0].tobytes()
    path = f"/v2/models/{name}/versions/1/infer"
    response = shared_client().post(path, content=content, headers={HEADER: "0"})
    if not needs_nothing(name):
        assert response.status_code == 422
        missing = [key for key, field in MAPPINGS[name].model_fields.items() if field.is_required()]
        assert missing[0] in response.json()["error"]
        return
    _, found = parsed(response)
    assert response.headers[HEADER] != str(len(response.content))
    wanted = present(evaluate(torch.from_numpy(ROWS[:1]), built(name)).probabilities).numpy()
    assert found["probabilities"].shape == (1, 33)
    assert found["probabilities"].tobytes() == wanted.tobytes()


def test_the_support_is_cut_where_that_is_asked_for() -> None:
    response = infer(
        "softmax", logits(ROWS), parameters={"support_limit": 5}, outputs=outputs(*SUPPORT)
    )
    _, found = parsed(response)
    assert found["support_offsets"].tolist() == [0, 5, 10, 15, 20]
    order = np.argsort(-ROWS, axis=-1, kind="stable")[:, :5]
    assert found["support_indices"].reshape(4, 5).tolist() == order.tolist()
    assert found["support_indices"].dtype == np.int32


@pytest.mark.parametrize("names", [DENSE, SUPPORT, ("tokens", "status")])
def test_no_rows_have_an_empty_answer(names: tuple[str, ...]) -> None:
    empty = np.zeros((0, 1 << 25), np.float32)
    for is_binary in (True, False):
        response = infer(
            "sparsemax",
            logits(empty, binary=is_binary),
            outputs=outputs(*names),
            parameters={"binary_data_output": is_binary},
        )
        head, found = parsed(response)
        for output in head["outputs"]:
            if output["name"] == "support_offsets":
                assert found["support_offsets"].tolist() == [0]
            elif output["name"] in ("probabilities", "log_probabilities"):
                assert output["shape"] == [0, 1 << 25]
            else:
                assert output["shape"][0] == 0


def test_names_and_ids_may_hold_any_unicode() -> None:
    for text in ("", "é", "漢字 🎲", "\u2028\x7f", 'a"b\\c', "x" * 5000):
        head, _ = parsed(infer("softmax", logits(ROWS), id=text))
        assert head["id"] == text
        response = infer("softmax", logits(ROWS), outputs=outputs(text))
        assert response.status_code == 422
        assert len(response.content) < 5000


def test_what_the_protocol_calls_optional_may_be_null() -> None:
    entry = logits(ROWS, binary=False).entry() | {"parameters": None}
    document = {"inputs": [entry], "outputs": None, "parameters": None, "id": None}
    response = shared_client().post(
        "/v2/models/softmax/infer", content=json.dumps(document), headers={"Content-Type": "x/y"}
    )
    _, found = parsed(response)
    assert found["probabilities"].shape == ROWS.shape


def test_an_answer_says_how_long_it_is() -> None:
    response = infer("softmax", logits(ROWS), **binary("probabilities", "entropy"))
    assert int(response.headers["content-length"]) == len(response.content)
    assert "transfer-encoding" not in response.headers


@pytest.mark.parametrize("lead", range(5))
def test_logits_are_the_bodys_memory_where_that_is_aligned(lead: int) -> None:
    content, headers = body(logits(ROWS), padding=lead)
    whole = bytearray(content)
    length = int(headers[HEADER])
    start = torch.frombuffer(whole, dtype=torch.uint8).data_ptr()
    job, _ = decode(
        whole, length, MAPPINGS["softmax"], Settings(), Regions(is_allowed=False, rooms=Rooms())
    )
    is_view = job.logits.data_ptr() == start + length
    assert is_view == ((start + length) % 4 == 0)
    assert job.logits.data_ptr() % 4 == 0
    assert job.logits.numpy().tobytes() == ROWS.tobytes()
