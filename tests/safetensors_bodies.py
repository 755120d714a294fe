"""safetensors bodies for tests: made by the safetensors package, or by hand to be wrong."""

import json
from typing import Any

import httpx
import torch
from safetensors.torch import load, save
from torch import Tensor

from server import shared_client

MEDIA_TYPE = "application/vnd.safetensors"


def body(tensors: dict[str, Tensor], **fields: Any) -> bytes:
    """A body as the safetensors package writes it."""
    made: bytes = save(tensors, {"request": json.dumps(fields), "format": "pt"})
    return made


def raw(named: bytes | str | dict[str, Any], data: bytes = b"", length: int | None = None) -> bytes:
    """A body of any header, with its own length unless another is given."""
    text = json.dumps(named) if isinstance(named, dict) else named
    packed = text.encode() if isinstance(text, str) else text
    return (len(packed) if length is None else length).to_bytes(8, "little") + packed + data


def post_binary(
    path: str, content: bytes, accept: str | None = None, **headers: str
) -> httpx.Response:
    """Posts a safetensors body to the shared server; without Accept unless one is given."""
    client = shared_client()
    sent = {"content-type": MEDIA_TYPE, **headers}
    request = client.build_request("POST", path, content=content, headers=sent)
    del request.headers["accept"]
    if accept is not None:
        request.headers["accept"] = accept
    return client.send(request)


def answered(response: httpx.Response) -> dict[str, Tensor]:
    """The tensors of an answer, as the safetensors package reads them."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == MEDIA_TYPE
    assert int(response.headers["content-length"]) == len(response.content)
    found: dict[str, Tensor] = load(response.content)
    return found


def header(content: bytes) -> dict[str, Any]:
    """The header of a body; its tensors are in the order in which it names them."""
    size = int.from_bytes(content[:8], "little")
    found: dict[str, Any] = json.loads(content[8 : 8 + size])
    return found


def said(response: httpx.Response) -> dict[str, Any]:
    """What an answer says beside its tensors."""
    found: dict[str, Any] = json.loads(header(response.content)["__metadata__"]["answer"])
    return found


def ask(path: str, tensors: dict[str, Tensor], **fields: Any) -> dict[str, Tensor]:
    """The tensors that a request in safetensors is answered with."""
    return answered(post_binary(path, body(tensors, **fields)))


def random_logits(rows: int, classes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Logits of a fixed seed."""
    generator = torch.Generator().manual_seed(17)
    return (torch.randn(rows, classes, generator=generator) * 3).to(dtype)
