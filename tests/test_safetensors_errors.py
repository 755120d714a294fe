"""What breaks a rule of safetensors is malformed; what is well-formed but wrong is located."""

import json
from typing import Any

import pytest
import torch
from torch import Tensor

from safetensors_bodies import body, post_binary, random_logits, raw
from test_http_errors import assert_problem

F32 = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
DATA = bytes(8)
REQUEST = {"__metadata__": {"request": '{"mapping": "softmax"}'}}


def entry(**changed: Any) -> dict[str, Any]:
    """A header that is right but for what is changed of its one tensor."""
    return {**REQUEST, "logits": {**F32, **changed}}


def two(first: list[int], second: list[int]) -> dict[str, Any]:
    """A header of two tensors with these offsets."""
    return {**entry(data_offsets=first), "temperature": {**F32, "data_offsets": second}}


SOUND = json.dumps(entry())

MALFORMED: dict[str, bytes] = {
    "nothing": b"",
    "half a length": bytes(4),
    "a length alone": raw(b"", length=5),
    "no header": raw(b""),
    "a header longer than the body": raw(SOUND, DATA, length=len(SOUND) + 9),
    "a header of 2^63 bytes": raw(SOUND, DATA, length=1 << 63),
    "a header of 2^64 - 1 bytes": raw(SOUND, DATA, length=(1 << 64) - 1),
    "a header over a megabyte": raw(SOUND + " " * (1 << 20), DATA),
    "a header over a hundred megabytes": raw(SOUND + " " * (101 << 20), DATA),
    "a header cut short": raw(SOUND, DATA, length=len(SOUND) - 1),
    "a header that begins with a space": raw(" " + SOUND, DATA),
    "a header that is a list": raw("[1]"),
    "a header that is a text": raw('"logits"'),
    "a header that is no JSON": raw("{logits}"),
    "two headers": raw(SOUND + SOUND, DATA),
    "a header of bad UTF-8": raw(b'{"\xff": 1}'),
    "a lone surrogate": raw('{"\\ud800": {}}'),
    "a header nested 100,000 deep": raw('{"a":' * 100_000),
    "lists nested 900 deep": raw('{"a":' + "[" * 900 + "]" * 900 + "}"),
    "a number of 5,000 digits": raw('{"a": ' + "1" * 5000 + "}"),
    "NaN": raw('{"a": NaN}'),
    "a tensor twice": raw(SOUND[:-1] + ', "logits": ' + json.dumps(F32) + "}", DATA),
    "a tensor twice, one of them escaped": raw(
        SOUND[:-1] + ', "logit\\u0073": ' + json.dumps(F32) + "}", DATA
    ),
    "metadata twice": raw(SOUND[:-1] + ', "__metadata__": {}}', DATA),
    "a request twice": raw('{"__metadata__": {"request": "{}", "request": "{}"}}'),
    "a dtype twice": raw(SOUND.replace('"dtype"', '"dtype": "F16", "dtype"'), DATA),
    "100,000 names and one twice": raw(
        "{" + ",".join(f'"{place}":1' for place in range(80_000)) + ',"0":1}'
    ),
    "metadata that are a list": raw({**entry(), "__metadata__": []}, DATA),
    "metadata that are no texts": raw({**entry(), "__metadata__": {"request": {}}}, DATA),
    "a tensor that is a number": raw({**REQUEST, "logits": 1}),
    "a tensor without a shape": raw({"logits": {"dtype": "F32", "data_offsets": [0, 8]}}, DATA),
    "a tensor with more fields": raw(entry(strides=[1]), DATA),
    "an unknown dtype": raw(entry(dtype="F31"), DATA),
    "an 8-bit float": raw(entry(dtype="F8_E4M3", shape=[8]), DATA),
    "a dtype in lower case": raw(entry(dtype="f32"), DATA),
    "a dtype that is a number": raw(entry(dtype=32), DATA),
    "a dtype that is a list": raw(entry(dtype=["F32"]), DATA),
    "a shape of -1": raw(entry(shape=[-1, 2]), DATA),
    "a shape of -2 × -1": raw(entry(shape=[-2, -1]), DATA),
    "a shape of 2.0": raw(entry(shape=[2.0]), DATA),
    "a shape of true": raw(entry(shape=[True, 2]), DATA),
    'a shape of "2"': raw(entry(shape=["2"]), DATA),
    "a shape that is a number": raw(entry(shape=2), DATA),
    "a shape of null": raw(entry(shape=None), DATA),
    "a shape that wraps around to the size": raw(entry(shape=[1 << 4, (1 << 60) + 2]), DATA),
    "an empty shape too large for any memory": raw(entry(shape=[0, 1 << 59, 1 << 59]), DATA),
    "nine dimensions": raw(entry(shape=[1] * 8 + [2]), DATA),
    "a shape that needs more bytes": raw(entry(shape=[3]), DATA),
    "a shape that needs fewer bytes": raw(entry(shape=[1]), DATA),
    "a dtype that needs more bytes": raw(entry(dtype="F64"), DATA),
    "negative offsets": raw(entry(data_offsets=[-8, 0]), DATA),
    "offsets backwards": raw(entry(data_offsets=[8, 0]), DATA),
    "offsets behind the end": raw(entry(data_offsets=[8, 16]), DATA),
    "an offset of 2^64": raw(entry(data_offsets=[1 << 64, (1 << 64) + 8]), DATA),
    "offsets that are floats": raw(entry(data_offsets=[0.0, 8.0]), DATA),
    "three offsets": raw(entry(data_offsets=[0, 4, 8]), DATA),
    "one offset": raw(entry(data_offsets=[8]), DATA),
    "no offsets": raw(entry(data_offsets=[]), DATA),
    "offsets of null": raw(entry(data_offsets=None), DATA),
    "data short by one": raw(entry(), DATA[:-1]),
    "data long by one": raw(entry(), DATA + b"\0"),
    "no data": raw(entry()),
    "data of no tensor": raw(REQUEST, DATA),
    "a hole at the start": raw(entry(data_offsets=[8, 16]), DATA * 2),
    "a hole in the middle": raw(two([0, 8], [16, 24]), DATA * 3),
    "a hole at the end": raw(two([0, 8], [8, 16]), DATA * 3),
    "the same data twice": raw(two([0, 8], [0, 8]), DATA),
    "an overlap": raw(two([0, 8], [4, 12]), DATA + DATA[:4]),
    "one inside the other": raw(
        {**entry(shape=[4], data_offsets=[0, 16]), "a": {**F32, "data_offsets": [4, 12]}}, DATA * 2
    ),
    "an empty tensor inside another": raw(
        {**entry(), "a": {**F32, "shape": [0], "data_offsets": [4, 4]}}, DATA
    ),
    "a pickle": b"\x80\x02}q\x00(X\x01\x00\x00\x00aK\x01u.",
    "JSON": b'{"logits": [1, 2], "mapping": "softmax"}',
}


@pytest.mark.parametrize("content", MALFORMED.values(), ids=MALFORMED)
def test_a_body_that_breaks_a_rule_is_malformed(content: bytes) -> None:
    problem = assert_problem(post_binary("/v1/map", content), 400, "malformed_body")
    assert "safetensors" in problem["detail"]


def test_the_sound_body_that_the_broken_ones_are_made_of_is_answered() -> None:
    assert post_binary("/v1/map", raw(SOUND, DATA)).status_code == 200


@pytest.mark.parametrize("request_text", ["{", "[", '{"mapping": NaN}', '{"a": "\\ud800"}', ""])
def test_a_request_that_is_not_json_is_malformed(request_text: str) -> None:
    named = {**entry(), "__metadata__": {"request": request_text}}
    assert_problem(post_binary("/v1/map", raw(named, DATA)), 400, "malformed_body")


INTEGERS = [torch.int64, torch.int32, torch.uint8, torch.bool]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_logits_of_another_dtype_are_malformed(dtype: torch.dtype) -> None:
    made = body({"logits": torch.ones(1, 2).to(dtype)}, mapping="softmax")
    assert_problem(post_binary("/v1/map", made), 400, "malformed_body")


WRONG_DTYPES: dict[str, tuple[str, dict[str, Tensor], dict[str, Any]]] = {
    "a vector of integers": (
        "/v1/map",
        {"jacobian.vector": torch.ones(2, 3).long()},
        {"jacobian": {"form": "jvp"}},
    ),
    "targets of true and false": ("/v1/loss", {"targets": torch.tensor([True, False])}, {}),
}


@pytest.mark.parametrize(
    ("path", "tensors", "fields"), WRONG_DTYPES.values(), ids=WRONG_DTYPES.keys()
)
def test_tensors_of_another_dtype_are_malformed(
    path: str, tensors: dict[str, Tensor], fields: dict[str, Any]
) -> None:
    made = body({"logits": random_logits(2, 3), **tensors}, mapping="softmax", **fields)
    assert_problem(post_binary(path, made), 400, "malformed_body")


def one(name: str, tensor: Tensor) -> dict[str, Tensor]:
    return {name: tensor}


NAN = torch.tensor([[0.5, torch.nan, 0.5], [1, 0, 0]])
JVP = {"jacobian": {"form": "jvp"}}
BAN = {"processors": ["ban"]}

WRONG: dict[str, tuple[dict[str, Tensor], dict[str, Any], list[str | int]]] = {
    "three dimensions": (one("logits", torch.zeros(1, 2, 3)), {}, ["logits"]),
    "a number for logits": (one("logits", torch.tensor(1.0)), {}, ["logits"]),
    "a row without a class": (one("logits", torch.zeros(2, 0)), {}, ["logits", 0]),
    "no mapping": ({}, {"mapping": None}, ["mapping"]),
    "logits in the request": ({}, {"logits": [[1, 2]]}, ["logits"]),
    "an unknown tensor": (one("biases", torch.zeros(2)), {}, ["biases"]),
    "an unknown place": (one("nowhere.0.ids", torch.zeros(2)), {}, ["nowhere.0.ids"]),
    "a place behind the chain": (one("processors.1.ids", torch.ones(1)), BAN, ["processors.1.ids"]),
    "a place before the chain": (
        one("processors.-1.ids", torch.ones(1)),
        BAN,
        ["processors.-1.ids"],
    ),
    "a vector without a form": (one("jacobian.vector", NAN), {}, ["jacobian.vector"]),
    "an empty name": (one("", torch.zeros(2)), {}, [""]),
    "a long name": (one("x" * 5000, torch.zeros(2)), {}, ["x" * 64]),
    "given twice": (one("temperature", torch.ones(2)), {"temperature": 1}, ["temperature"]),
    "given twice by place": (
        one("mapping.temperature", torch.ones(2)),
        {"temperature": 1},
        ["mapping", "temperature"],
    ),
    "a temperature too many": (one("temperature", torch.ones(3)), {}, ["temperature"]),
    "a temperature too few": (one("temperature", torch.ones(1)), {}, ["temperature"]),
    "temperatures in columns": (one("temperature", torch.ones(2, 1)), {}, ["temperature"]),
    "temperatures in three dimensions": (
        one("temperature", torch.ones(2, 1, 1)),
        {},
        ["temperature"],
    ),
    "a temperature of NaN": (one("temperature", torch.tensor(torch.nan)), {}, ["temperature"]),
    "a temperature of infinity": (
        one("temperature", torch.tensor([1.0, torch.inf])),
        {},
        ["temperature", 1],
    ),
    "a temperature below 0": (one("temperature", torch.tensor([1.0, -1])), {}, ["temperature", 1]),
    "a k of a float": (one("k", torch.ones(2)), {"mapping": "sparse_softmax"}, ["k", 0]),
    "outputs": (one("outputs", torch.ones(2)), {}, ["outputs"]),
    "a mapping": (one("mapping", torch.ones(2)), {"mapping": ...}, ["mapping"]),
    "an id behind the classes": (
        one("processors.0.ids", torch.tensor([3])),
        BAN,
        ["processors", 0, "ids"],
    ),
    "weights of NaN": (
        one("weights", torch.tensor([[1.0, 1, torch.nan], [1, 1, 1]])),
        {"mapping": "weighted_softmax"},
        ["weights"],
    ),
    "a vector of another shape": (
        one("jacobian.vector", torch.zeros(3, 2)),
        JVP,
        ["jacobian", "vector"],
    ),
    "a vector of NaN": (one("jacobian.vector", NAN), JVP, ["jacobian", "vector", 0, 1]),
}


@pytest.mark.parametrize(("tensors", "fields", "loc"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_located(
    tensors: dict[str, Tensor], fields: dict[str, Any], loc: list[str | int]
) -> None:
    given = {"mapping": "softmax", **fields}
    sent = {name: value for name, value in given.items() if value is not ...}
    response = post_binary("/v1/map", body({"logits": random_logits(2, 3), **tensors}, **sent))
    assert response.status_code == 422, response.text
    problem = assert_problem(response, 422, response.json()["code"])
    assert problem["errors"][0]["loc"] == loc


WRONG_TARGETS: dict[str, tuple[Tensor, list[str | int]]] = {
    "too few": (torch.tensor([1]), ["targets"]),
    "behind the classes": (torch.tensor([1, 3]), ["targets", 1]),
    "below 0": (torch.tensor([-1, 0]), ["targets", 0]),
    "a matrix of integers": (torch.tensor([[1, 0, 0], [0, 1, 0]]), ["targets"]),
    "too narrow": (torch.ones(2, 1), ["targets"]),
    "ids as floats": (torch.tensor([1.0, 2.0]), ["targets"]),
    "not a distribution": (torch.ones(2, 3), ["targets", 0]),
    "NaN": (NAN, ["targets", 0, 1]),
}


@pytest.mark.parametrize(("targets", "loc"), WRONG_TARGETS.values(), ids=WRONG_TARGETS.keys())
def test_targets_that_do_not_fit_are_located(targets: Tensor, loc: list[str | int]) -> None:
    made = body({"logits": random_logits(2, 3), "targets": targets}, mapping="softmax")
    response = post_binary("/v1/loss", made)
    assert response.status_code == 422, response.text
    assert response.json()["errors"][0]["loc"] == loc


def test_a_seed_that_is_not_one_a_row_is_located() -> None:
    tensors = {"logits": random_logits(2, 3), "seed": torch.tensor([1, 2, 3])}
    response = post_binary("/v1/sample", body(tensors, mapping="softmax"))
    assert assert_problem(response, 422, "invalid_request")["errors"][0]["loc"] == ["seed"]


def test_a_body_without_logits_is_asked_for_them() -> None:
    response = post_binary("/v1/map", body({"temperature": torch.ones(1)}, mapping="softmax"))
    assert assert_problem(response, 422, "invalid_request")["errors"][0]["loc"] == ["logits"]


@pytest.mark.parametrize("metadata", [{}, {"request": "[]"}, {"request": "1"}], ids=str)
def test_a_body_without_a_request_is_asked_for_it(metadata: dict[str, str]) -> None:
    response = post_binary("/v1/map", raw({**entry(), "__metadata__": metadata}, DATA))
    assert assert_problem(response, 422, "invalid_request")["errors"][0]["loc"] == ["request"]


TOO_LARGE: dict[str, tuple[Tensor, str]] = {
    "rows": (torch.zeros(65_537, 1), "max_rows"),
    "classes, without a row": (torch.zeros(0, (1 << 25) + 1), "max_classes"),
    "rows, without a class": (torch.zeros(65_537, 0), "max_rows"),
    "an answer": (torch.zeros(2, 3000), "max_output_elements"),
}


@pytest.mark.parametrize(("logits", "setting"), TOO_LARGE.values(), ids=TOO_LARGE.keys())
def test_what_is_over_a_limit_names_its_setting(logits: Tensor, setting: str) -> None:
    made = body({"logits": logits}, mapping="softmax", outputs=["jacobian"])
    problem = assert_problem(post_binary("/v1/map", made), 413, "too_large")
    assert setting.upper() in problem["detail"]
