"""Malformed requests of the Open Inference Protocol: refused with 400 by either HTTP parser."""

import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
import torch

from oip_bodies import HEADER, Sent, binary, body, infer, logits, outputs, parsed, rows
from safetensors_bodies import MEDIA_TYPE as SAFETENSORS
from safetensors_bodies import answered
from safetensors_bodies import body as safetensors_body
from server import running_server, shared_client, shared_server

ROWS = rows(2, 3)
PATH = "/v2/models/softmax/infer"


@pytest.fixture(scope="module", params=["httptools", "h11"])
def client(request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    if request.param == "httptools":
        yield shared_client()
        return
    with (
        running_server("--http-parser", "h11") as server,
        httpx.Client(base_url=server.url, timeout=60) as started,
    ):
        yield started


def refused(response: httpx.Response, *words: str, status: int = 400) -> None:
    """Asserts a problem document of a status that has these words in it."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["error"] == problem["detail"]
    assert len(response.content) < 6000
    for word in words:
        assert word in problem["error"], problem["error"]


HEADERS = ["99999999999", "-1", "abc", "", "1e3", "+5", "0x10", "1_0", "²", "9" * 4000]


@pytest.mark.parametrize("value", [*HEADERS, "too long"])
def test_a_header_length_that_is_none_is_refused(client: httpx.Client, value: str) -> None:
    content, headers = body(logits(ROWS))
    told = str(len(content) + 1) if value == "too long" else value
    sent = [(HEADER.encode(), told.encode())]
    refused(client.post(PATH, content=content, headers=sent), HEADER)
    assert parsed(client.post(PATH, content=content, headers=headers))


LIES = {
    "two lengths": "Content-Length: 90\r\nContent-Length: 91",
    "below 0": "Content-Length: -1",
    "no number": "Content-Length: abc",
    "signed": "Content-Length: +90",
    "beyond any body": f"Content-Length: {'9' * 30}",
    "a chunk of no size": "Transfer-Encoding: chunked",
}


@pytest.mark.parametrize("kind", ["oip", "safetensors"])
@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_a_body_that_lies_about_its_length_is_refused(
    client: httpx.Client, kind: str, lie: str
) -> None:
    content, headers = body(logits(ROWS))
    path = PATH
    if kind == "safetensors":
        content = safetensors_body({"logits": torch.zeros(2, 3)}, mapping="softmax")
        path, headers = "/v1/map", {"Content-Type": SAFETENSORS}
    told = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    address = (client.base_url.host, client.base_url.port)
    with socket.create_connection(address, timeout=60) as connection:
        connection.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\n{told}{lie}\r\n\r\n".encode())
        connection.sendall(b"zz\r\n" + content)
        assert connection.recv(4096).startswith(b"HTTP/1.1 400 ")


def test_a_header_length_given_twice_is_refused(client: httpx.Client) -> None:
    content, headers = body(logits(ROWS))
    twice = [(HEADER, headers[HEADER])] * 2
    refused(client.post(PATH, content=content, headers=twice), HEADER, "once")


@pytest.mark.parametrize("shift", [-9, -2, -1, 1, 2, 9])
def test_a_header_length_that_cuts_elsewhere_is_refused(client: httpx.Client, shift: int) -> None:
    content, headers = body(logits(ROWS))
    told = {HEADER: str(int(headers[HEADER]) + shift)}
    refused(client.post(PATH, content=content, headers=told))


def test_tensors_without_a_header_length_are_refused(client: httpx.Client) -> None:
    content, headers = body(logits(ROWS))
    refused(client.post(PATH, content=content))
    alone = content[: int(headers[HEADER])]
    refused(client.post(PATH, content=alone), HEADER, "missing")


@pytest.mark.parametrize("change", [-24, -4, -1, 1, 3, 4, 24])
def test_a_body_of_another_length_is_refused(client: httpx.Client, change: int) -> None:
    content, headers = body(logits(ROWS))
    content = content[:change] if change < 0 else content + b"\0" * change
    refused(client.post(PATH, content=content, headers=headers), "binary_data_size")


@pytest.mark.parametrize("size", [0, 23, 25, 20, 28, 48, 2**62, 2**63 - 1])
def test_a_size_other_than_the_shape_takes_is_refused(client: httpx.Client, size: int) -> None:
    entry = logits(ROWS).entry() | {"parameters": {"binary_data_size": size}}
    head = json.dumps({"inputs": [entry]}).encode()
    content = head + b"\0" * min(size, 48)
    response = client.post(PATH, content=content, headers={HEADER: str(len(head))})
    refused(response, "binary_data_size", "2 × 3 FP32", "24 bytes")


SHAPES: list[Any] = [
    [-1, 3], [3, -1], [1.5, 3], [2.0, 3], ["3"], ["2", 3], [True, 3], [2**4, 2**60 + 2], [2**63, 1],
    [2**64, 1], [1, 2**62], [10**30, 0], [], [2], [6], [1, 2, 3], [1] * 1000, None, 6, "2,3", {},
    [None, 3], [[2], 3], [3, 2, 1], [2, 4], [0, 0], [2, 0],
]  # fmt: skip


@pytest.mark.parametrize("is_binary", [True, False], ids=["binary", "json"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_shape_that_is_none_is_refused(
    client: httpx.Client, shape: object, is_binary: bool
) -> None:
    entry = logits(ROWS, binary=is_binary).entry() | {"shape": shape}
    head = json.dumps({"inputs": [entry]}).encode()
    content = head + ROWS.tobytes() if is_binary else head
    headers = {HEADER: str(len(head))} if is_binary else {}
    response = client.post(PATH, content=content, headers=headers)
    refused(response)
    assert any(word in response.text for word in ("shape", "binary_data_size", "data has"))


def entry(**changes: Any) -> dict[str, Any]:
    """An input as JSON, with changes; what is changed to ... is left out."""
    made = logits(ROWS, binary=False).entry() | changes
    return {name: value for name, value in made.items() if value is not ...}


BYTES = {"parameters": {"binary_data_size": 24}}

MALFORMED: dict[str, tuple[Any, list[str]]] = {
    "no object": ([], ["object"]),
    "no inputs": ({}, ["inputs", "logits"]),
    "empty inputs": ({"inputs": []}, ["inputs", "logits"]),
    "inputs null": ({"inputs": None}, ["inputs"]),
    "inputs no list": ({"inputs": {"logits": []}}, ["inputs", "list"]),
    "an input no object": ({"inputs": [7]}, ["inputs[0]", "object"]),
    "an input null": ({"inputs": [None]}, ["inputs[0].name"]),
    "no name": ({"inputs": [entry(name=...)]}, ["inputs[0].name"]),
    "a name no text": ({"inputs": [entry(name=7)]}, ["inputs[0].name", "string"]),
    "no logits": ({"inputs": [entry(name="alpha")]}, ["logits"]),
    "twice": ({"inputs": [entry(), entry()]}, ["inputs[1].name", "once"]),
    "no datatype": ({"inputs": [entry(datatype=...)]}, ["inputs[0].datatype"]),
    "unknown datatype": ({"inputs": [entry(datatype="FP8")]}, ["datatype", "FP16, BF16, FP32"]),
    "small datatype": ({"inputs": [entry(datatype="fp32")]}, ["datatype"]),
    "texts": ({"inputs": [entry(datatype="BYTES")]}, ["datatype"]),
    "whole logits": ({"inputs": [entry(datatype="INT32", data=[1] * 6)]}, ["logits", "FP32"]),
    "bf16 as text": ({"inputs": [entry(datatype="BF16")]}, ["BF16", "binary"]),
    "no data": ({"inputs": [entry(data=...)]}, ["inputs[0]", "one place"]),
    "data twice": ({"inputs": [entry(**BYTES)]}, ["inputs[0]", "one place"]),
    "data and region": (
        {
            "inputs": [
                entry(
                    parameters={"shared_memory_region": "r", "shared_memory_byte_size": 24}
                )
            ]
        },
        ["inputs[0]", "one place"],
    ),
    "a region without size": (
        {"inputs": [entry(data=..., parameters={"shared_memory_region": "r"})]},
        ["shared_memory_byte_size"],
    ),
    "a size without region": (
        {"inputs": [entry(data=..., parameters={"shared_memory_byte_size": 24})]},
        ["shared_memory_region"],
    ),
    "a size no number": (
        {"inputs": [entry(data=..., parameters={"binary_data_size": "24"})]},
        ["binary_data_size", "whole number"],
    ),
    "a size with a fraction": (
        {"inputs": [entry(data=..., parameters={"binary_data_size": 24.0})]},
        ["binary_data_size", "whole number"],
    ),
    "too little data": ({"inputs": [entry(data=[1] * 5)]}, ["data", "5", "6"]),
    "too much data": ({"inputs": [entry(data=[1] * 7)]}, ["data", "7", "6"]),
    "other rows": ({"inputs": [entry(data=[[1, 2], [1, 2], [1, 2]])]}, ["data", "rows"]),
    "rows of different lengths": ({"inputs": [entry(data=[[1, 2, 3, 4], [1, 2]])]}, ["rows"]),
    "too large for its type": ({"inputs": [entry(data=[1e39] * 6)]}, ["FP32", "cannot hold"]),
    "too large for half": (
        {"inputs": [entry(datatype="FP16", data=[70000] * 6)]},
        ["FP16", "cannot hold"],
    ),
    "unknown field": ({"inputs": [entry(dtype="FP32")]}, ["inputs[0].dtype", "datatype"]),
    "unknown top field": ({"inputs": [entry()], "input": 1}, ["input"]),
    "outputs no list": ({"inputs": [entry()], "outputs": {}}, ["outputs", "list"]),
    "an output no object": ({"inputs": [entry()], "outputs": ["x"]}, ["outputs[0]", "object"]),
    "an output twice": (
        {"inputs": [entry()], "outputs": outputs("entropy", "entropy")},
        ["outputs[1].name", "once"],
    ),
    "binary no flag": (
        {
            "inputs": [entry()],
            "outputs": [{"name": "entropy", "parameters": {"binary_data": 1}}],
        },
        ["binary_data", "true or false"],
    ),
    "no classes": (
        {
            "inputs": [entry()],
            "outputs": [{"name": "probabilities", "parameters": {"classification": 0}}],
        },
        ["classification", "1 or more"],
    ),
    "classes of something else": (
        {
            "inputs": [entry()],
            "outputs": [{"name": "entropy", "parameters": {"classification": 1}}],
        },
        ["classification", "probabilities"],
    ),
    "parameters no object": ({"inputs": [entry()], "parameters": []}, ["parameters", "object"]),
    "a parameter that is a list": (
        {"inputs": [entry()], "parameters": {"temperature": [1, 2]}},
        ["temperature"],
    ),
    "a parameter null": ({"inputs": [entry()], "parameters": {"temperature": None}}, ["number"]),
    "a timeout below 0": ({"inputs": [entry()], "parameters": {"timeout": -1}}, ["timeout"]),
    "a timeout over a day": (
        {"inputs": [entry()], "parameters": {"timeout": 86_400_000_001}},
        ["timeout", "86,400,000,000"],
    ),
    "a timeout no number": ({"inputs": [entry()], "parameters": {"timeout": "1"}}, ["timeout"]),
    "an id no text": ({"inputs": [entry()], "id": 7}, ["id", "string"]),
    "given twice": (
        {
            "inputs": [entry(), entry(name="temperature", shape=[2], data=[1, 2])],
            "parameters": {"temperature": 1},
        },
        ["inputs[1]", "parameters", "once"],
    ),
    "one for all rows": (
        {"inputs": [entry(), entry(name="temperature", shape=[1], data=[1])]},
        ["inputs[1].shape", "[2] or [2, 1]"],
    ),
    "a whole number with a fraction": (
        {
            "inputs": [
                entry(), entry(name="top_k", shape=[2], datatype="INT32", data=[1.5, 2])
            ]
        },
        ["inputs[1].data", "whole"],
    ),
    "a whole number too large": (
        {"inputs": [entry(), entry(name="top_k", shape=[2], datatype="INT8", data=[1, 128])]},
        ["INT8", "cannot hold"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_request_is_refused(client: httpx.Client, name: str) -> None:
    document, words = MALFORMED[name]
    refused(client.post(PATH, content=json.dumps(document)), *words)


NOT_JSON: dict[str, bytes] = {
    "nothing": b"",
    "half": b'{"inputs": [',
    "deep": b'{"inputs":' + b"[" * 100_000,
    "deep objects": b'{"id":' * 100_000,
    "deep and closed": b'{"inputs":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "many digits": b'{"inputs": [], "id": ' + b"9" * 5000 + b"}",
    "many digits in data": json.dumps({"inputs": [entry(data=["@"])]})
    .encode()
    .replace(b'"@"', b"1" * 5000),
    "not utf-8": b'{"id": "\xff\xfe"}',
    "a lone surrogate": b'{"id": "\\ud800"}',
    "nan": b'{"inputs": [NaN]}',
    "infinity": b'{"inputs": [1e999]}',
    "two values": b"{} {}",
    "a comment": b"/* */ {}",
    "nul": b"\0",
    "a byte order mark": b"\xef\xbb\xbf{}",
}


@pytest.mark.parametrize("name", NOT_JSON)
def test_what_is_not_json_is_refused(client: httpx.Client, name: str) -> None:
    content = NOT_JSON[name]
    refused(client.post(PATH, content=content))
    tensor = ROWS.tobytes()
    # Without any JSON the body would be a row of FP32.
    content = content or b" "
    headers = {HEADER: str(len(content))}
    refused(client.post(PATH, content=content + tensor, headers=headers))


@pytest.mark.parametrize("length", [0, 1, 2, 3, 5, 13])
def test_a_raw_body_is_whole_numbers_of_four_bytes(client: httpx.Client, length: int) -> None:
    response = client.post(PATH, content=b"\0" * length, headers={HEADER: "0"})
    refused(response, "4 bytes a class", f"{length} bytes")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"outputs": outputs("probability")}, ["probability", "did you mean probabilities"]),
        ({"outputs": outputs("jacobian")}, ["jacobian"]),
        ({"parameters": {"tempurature": 1}}, ["tempurature", "did you mean temperature"]),
        ({"parameters": {"mapping": "entmax"}}, ["mapping"]),
        ({"parameters": {"name": "entmax"}}, ["name"]),
        ({"parameters": {"outputs": "entropy"}}, ["outputs"]),
        ({"parameters": {"processors": "x"}}, ["processors"]),
        ({"parameters": {"samples": 0}}, ["samples"]),
        ({"parameters": {"seed": -1}}, ["seed"]),
        ({"parameters": {"seed": 2**64}}, ["seed"]),
        ({"parameters": {"top_p": "0.5"}}, ["top_p", "number"]),
        ({"parameters": {"top_k": 2.5}}, ["top_k", "integer"]),
        ({"parameters": {"top_k": True}}, ["top_k", "integer"]),
        ({"parameters": {"invalid_rows": "ignore"}}, ["invalid_rows", "reject"]),
        ({"parameters": {"x" * 10_000: 1}}, ["unknown field"]),
        ({"parameters": {"temperature": -1, "top_p": 0.5}}, ["temperature", "greater than 0"]),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_well_formed_but_wrong_is_a_422(fields: dict[str, Any], words: list[str]) -> None:
    refused(infer("softmax", logits(ROWS), **fields), *words, status=422)


def test_an_input_that_nothing_takes_is_a_422_that_says_what_is_taken() -> None:
    response = infer("entmax", logits(ROWS), Sent("alfa", np.ones(2)))
    refused(response, "alfa", "did you mean alpha", status=422)


def test_a_wrong_value_of_one_row_is_named() -> None:
    response = infer("entmax", logits(ROWS), Sent("alpha", np.array([1.5, 77.0])))
    refused(response, "alpha[1]", "16", status=422)
    assert response.json()["errors"][0]["loc"] == ["alpha", 1]
    response = infer("softmax", logits(ROWS), Sent("top_p", np.array([[0.5], [1.5]])))
    refused(response, "top_p[1]", status=422)
    assert response.json()["errors"][0]["loc"] == ["top_p", 1]


def test_a_fraction_where_whole_numbers_are_due_is_a_422() -> None:
    response = infer("sparse_softmax", logits(ROWS), Sent("k", np.array([1.0, 2.0])))
    refused(response, "k[0]", "integer", status=422)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_inference_is_posted(method: str) -> None:
    refused(shared_client().request(method, PATH), "POST", status=405)


def test_a_model_that_is_not_there_is_told_before_the_body_is_read(client: httpx.Client) -> None:
    for path in ("/v2/models/%F0%9F%8E%B2/infer", "/v2/models/softmax/versions/2/infer"):
        refused(client.post(path, content=b"x" * 3_000_000), status=404)


def test_the_index_refuses_what_it_does_not_know() -> None:
    answers = [
        shared_client().post("/v2/repository/index", content=content)
        for content in (b"[", b"[1]", b'{"ready": 1}', b'{"redy": true}')
    ]
    for response in answers:
        refused(response)
    response = shared_client().post("/v2/repository/index", content=b" " * 70_000)
    refused(response, "this path reads 65,536 bytes", status=413)
    assert "max-body-bytes" not in response.text
    assert shared_client().post("/v2/repository/index", content=b"").status_code == 200


LIMITS = ["--max-rows", "4", "--max-classes", "50", "--max-elements", "100"]


@pytest.fixture(scope="module")
def limited() -> Iterator[httpx.Client]:
    flags = [*LIMITS, "--max-body-bytes", "200000", "--max-output-elements", "120"]
    with (
        running_server(*flags, "--body-timeout-seconds", "0.5") as server,
        httpx.Client(base_url=server.url, timeout=60) as started,
    ):
        yield started


def one(name: str, **parameters: Any) -> list[dict[str, Any]]:
    return [{"name": name, "parameters": parameters}]


@pytest.mark.parametrize(
    ("shape", "fields", "setting"),
    [
        ((5, 1), {}, "max-rows"),
        ((1, 51), {}, "max-classes"),
        ((3, 40), {}, "max-elements"),
        ((0, 10**12), {}, "max-classes"),
        ((1, 3), {"parameters": {"samples": 61}}, "max-output-elements"),
        ((2, 40), {"outputs": outputs("probabilities", "log_probabilities")}, "max-output"),
        ((2, 40), {"outputs": one("probabilities", classification=20)}, "max-output-elements"),
        ((2, 40), {"outputs": outputs("support_indices", "support_probabilities")}, "max-output"),
    ],
    ids=str,
)
def test_more_than_a_limit_is_a_413_that_names_its_setting(
    limited: httpx.Client, shape: tuple[int, int], fields: dict[str, Any], setting: str
) -> None:
    entry: dict[str, Any] = {"name": "logits", "datatype": "FP32", "shape": shape}
    size = 4 * shape[0] * shape[1]
    entry["parameters"] = {"binary_data_size": size}
    head = json.dumps({"inputs": [entry], **fields}).encode()
    headers = {HEADER: str(len(head))}
    response = limited.post(PATH, content=head + b"\0" * size, headers=headers)
    refused(response, f"--{setting}", status=413)


def test_what_is_as_long_as_the_logits_may_be_binary(limited: httpx.Client) -> None:
    fields = binary("probabilities", "log_probabilities", "support_indices")
    response = infer("softmax", logits(rows(2, 50)), client=limited, **fields)
    assert parsed(response)


def test_safetensors_may_be_as_long_as_the_logits_and_its_json_may_not(
    limited: httpx.Client,
) -> None:
    asked = ["probabilities", "log_probabilities", "support"]
    content = safetensors_body({"logits": torch.zeros(2, 50)}, mapping="softmax", outputs=asked)
    headers = {"content-type": SAFETENSORS}
    response = limited.post("/v1/map", content=content, headers=headers)
    assert answered(response)["support_indices"].shape == (100,)
    for accept, status in ((SAFETENSORS, 200), ("application/json", 413)):
        response = limited.post("/v1/map", content=content, headers={**headers, "accept": accept})
        assert response.status_code == status


def test_half_a_body_then_silence_is_a_timeout(limited: httpx.Client) -> None:
    content, headers = body(logits(rows(1, 50)))
    head = [f"POST {PATH} HTTP/1.1", "Host: x", f"Content-Length: {len(content)}"]
    head += [f"{HEADER}: {headers[HEADER]}", "", ""]
    with socket.create_connection(("127.0.0.1", int(limited.base_url.port or 0)), 20) as sender:
        sender.sendall("\r\n".join(head).encode() + content[:-50])
        answer = b"".join(iter(lambda: sender.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 408 ")


def test_no_malformed_request_left_a_traceback() -> None:
    assert "Traceback" not in shared_server().output
