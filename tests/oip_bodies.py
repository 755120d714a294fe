"""Bodies of the Open Inference Protocol, built by hand, and answers taken apart."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from server import shared_client

HEADER = "Inference-Header-Content-Length"

DTYPES: dict[str, Any] = {
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
}
NAMES = {np.dtype(dtype): name for name, dtype in DTYPES.items()}

Array = NDArray[Any]


@dataclass(frozen=True)
class Sent:
    """An input tensor to send."""

    name: str
    array: Array
    datatype: str | None = None
    binary: bool = True

    def entry(self) -> dict[str, Any]:
        datatype = self.datatype or NAMES[self.array.dtype]
        entry: dict[str, Any] = {"name": self.name, "datatype": datatype}
        entry["shape"] = list(self.array.shape)
        if self.binary:
            return entry | {"parameters": {"binary_data_size": self.array.nbytes}}
        return entry | {"data": self.array.tolist()}


def body(*inputs: Sent, padding: int = 0, **fields: Any) -> tuple[bytes, dict[str, str]]:
    """A request's body and headers; `padding` spaces stand before the tensors."""
    head = json.dumps({"inputs": [one.entry() for one in inputs], **fields}).encode()
    head += b" " * padding
    tensors = [one.array.tobytes() for one in inputs if one.binary]
    headers = {HEADER: str(len(head))} if tensors else {}
    return b"".join([head, *tensors]), headers


def infer(
    model: str, *inputs: Sent, client: httpx.Client | None = None, padding: int = 0, **fields: Any
) -> httpx.Response:
    """Asks a model of the shared server."""
    content, headers = body(*inputs, padding=padding, **fields)
    return (client or shared_client()).post(
        f"/v2/models/{model}/infer", content=content, headers=headers
    )


def logits(array: Array, **options: Any) -> Sent:
    return Sent("logits", array, **options)


def parsed(response: httpx.Response) -> tuple[dict[str, Any], dict[str, Array]]:
    """An answer's JSON, and its tensors by name."""
    assert response.status_code == 200, response.text
    content = response.content
    length = int(response.headers.get(HEADER, len(content)))
    head = json.loads(content[:length])
    tensors: dict[str, Array] = {}
    at = length
    for output in head["outputs"]:
        size = output.get("parameters", {}).get("binary_data_size")
        dtype = DTYPES.get(output["datatype"], np.object_)
        if size is None:
            tensors[output["name"]] = np.array(output["data"], dtype).reshape(output["shape"])
            continue
        part = content[at : at + size]
        at += size
        flat = _texts(part) if output["datatype"] == "BYTES" else np.frombuffer(part, dtype)
        tensors[output["name"]] = flat.reshape(output["shape"])
    assert at == len(content)
    return head, tensors


def binary(*names: str) -> dict[str, Any]:
    """The fields of a request for these outputs as binary data."""
    outputs = [{"name": name} for name in names]
    return {"outputs": outputs, "parameters": {"binary_data_output": True}}


def outputs(*names: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in names]


def _texts(part: bytes) -> Array:
    found: list[str] = []
    at = 0
    while at < len(part):
        size = int.from_bytes(part[at : at + 4], "little")
        found.append(part[at + 4 : at + 4 + size].decode())
        at += 4 + size
    return np.array(found, np.object_)


def rows(count: int, classes: int, seed: int = 0) -> Array:
    """Logits (rows, classes) in float32."""
    return np.random.default_rng(seed).normal(scale=3, size=(count, classes)).astype(np.float32)


def close(found: Array, wanted: Sequence[Any] | Array, within: float = 1e-6) -> None:
    """Asserts that two arrays are equal within an absolute distance."""
    np.testing.assert_allclose(found, np.array(wanted), atol=within, rtol=0)
