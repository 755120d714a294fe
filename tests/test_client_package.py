"""probmap_client as a package: what it imports, what it says of itself, how it connects."""

import asyncio
import inspect
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import probmap_client
from client_faces import FACES, opened
from probmap_client import AsyncClient, Client
from scripted_server import scripted
from server import ROOT, running_server, shared_server

each_face = pytest.mark.parametrize("face", FACES)

ALONE = """
import sys
import probmap_client
heavy = {"torch", "fastapi", "pydantic", "starlette", "scipy", "safetensors", "orjson", "service",
         "schemas", "mappings"}
print(sorted(heavy & {name.partition(".")[0] for name in sys.modules}))
"""


def test_its_import_brings_httpx_and_numpy_and_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", ALONE],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")


def test_it_needs_what_the_project_needs_without_the_server() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = [entry.partition(">")[0] for entry in project["dependencies"]]
    assert names == ["httpx", "numpy"]


def test_types_are_shipped() -> None:
    assert (Path(probmap_client.__file__).parent / "py.typed").exists()


def public(owner: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Something public, and of a class everything public that this package gives it."""
    yield name, owner
    if inspect.isclass(owner):
        for member in dir(owner):
            value = inspect.getattr_static(owner, member)
            value = getattr(value, "__func__", value)
            told = isinstance(value, property) or inspect.isfunction(value)
            if not member.startswith("_") and told:
                yield f"{name}.{member}", value


PUBLIC = {
    name: value
    for export in probmap_client.__all__
    for name, value in public(getattr(probmap_client, export), export)
}


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_a_docstring(name: str) -> None:
    text = PUBLIC[name].__doc__
    assert text
    # Not one that dataclass made up of the signature.
    assert not text.startswith(f"{name}(")


def test_there_are_names_to_look_at() -> None:
    assert {"Client.map", "AsyncClient.map", "MapResult.support", "Support.to_scipy"} <= set(PUBLIC)


@pytest.mark.parametrize("name", ["map", "sample", "loss", "stream", "mappings", "processors"])
def test_both_clients_take_the_same(name: str) -> None:
    one, other = getattr(Client, name), getattr(AsyncClient, name)
    parameters = [list(inspect.signature(method).parameters.values()) for method in (one, other)]
    # The asynchronous stream also takes asynchronous requests.
    kinds = [[(entry.name, entry.kind, entry.default) for entry in each] for each in parameters]
    assert kinds[0] == kinds[1]
    assert kinds[0][0][0] == "self"
    if name in ("map", "sample", "loss"):
        assert one.__doc__ == other.__doc__


@each_face
def test_an_api_key_is_sent_as_a_bearer_token_and_never_shown(face: str) -> None:
    with scripted() as server:
        with opened(face, server.url, api_key="s3cret", headers={"X-Team": "nine"}) as client:
            client.map([0.0], "softmax")
            shown = [repr(client), repr(vars(client)), repr(client._server)]
        with opened(face, server.url) as client:
            client.map([0.0], "softmax")
    first, second = (seen.headers for seen in server.seen)
    assert (first["authorization"], first["x-team"]) == ("Bearer s3cret", "nine")
    assert "authorization" not in second
    assert not any("s3cret" in text for text in shown)


@each_face
def test_connections_stay_open_for_the_next_call(face: str) -> None:
    with scripted() as server, opened(face, server.url) as client:
        for _ in range(5):
            client.map([0.0], "softmax")
    assert {seen.connection for seen in server.seen} == {1}


@each_face
def test_a_path_of_the_address_goes_before_the_servers_own(face: str) -> None:
    with scripted() as server, opened(face, f"{server.url}/behind/a/proxy/") as client:
        client.map([0.0], "softmax")
    assert server.seen[0].target == "/behind/a/proxy/v1/map"
    assert server.seen[0].headers["host"] == server.url.removeprefix("http://")


def test_a_unix_socket_needs_no_address() -> None:
    with tempfile.TemporaryDirectory(prefix="probmap-") as folder:
        path = f"{folder}/s.sock"
        with running_server("--uds", path):
            for face in FACES:
                with opened(face, uds=path) as client:
                    found = client.map([[0, 0.5, 1]], "sparsemax").probabilities
                    assert found.tolist() == [[0, 0.25, 0.75]]
                    streamed = client.stream([[0.0]] * 5, "softmax", window=2)
                    assert [result.rows for result in streamed] == [1] * 5


@each_face
@pytest.mark.parametrize(
    "address", ["127.0.0.1:8000", "ftp://127.0.0.1", "http://", "http://a:b", "", None]
)
def test_what_is_no_address_is_refused(face: str, address: str | None) -> None:
    with pytest.raises(ValueError, match="address"), opened(face, address):
        pass


def test_a_closed_client_is_closed() -> None:
    with Client(shared_server().url) as client:
        client.map([0, 1], "softmax")
    with pytest.raises(RuntimeError, match="closed"):
        client.map([0, 1], "softmax")

    async def main() -> None:
        async with AsyncClient(shared_server().url) as client:
            await client.map([0, 1], "softmax")
        with pytest.raises(RuntimeError, match="closed"):
            await client.map([0, 1], "softmax")

    asyncio.run(main())


TYPED = """
from typing import assert_type
import numpy as np
from numpy.typing import NDArray
from typing import Any
from probmap_client import *

def sync(c: Client) -> None:
    assert_type(c.map([[0, None]], "softmax", alpha=1), MapResult)
    assert_type(c.sample(np.zeros(3), "softmax", seed=[1]), SampleResult)
    assert_type(c.loss(np.zeros(3), "softmax", [1]).gradient, NDArray[Any])
    requests = [MapRequest([0, 1], "softmax")]
    assert_type([r for r in c.stream(requests)], list[MapResult])
    assert_type([r for r in c.stream(requests, errors="return")], list[MapResult | ProbmapError])
    assert_type([r for r in c.stream([[0, 1]], "softmax", alpha=2)], list[MapResult])

async def awaited(c: AsyncClient) -> None:
    assert_type(await c.map([0, 1], "softmax"), MapResult)
    requests = [SampleRequest([0, 1], "softmax")]
    assert_type([r async for r in c.stream(requests)], list[SampleResult])
    assert_type((await c.mappings())["softmax"].sparse, bool)

def wrong(c: Client) -> None:
    c.map([0, 1], 3)  # type: ignore[arg-type]
    c.map([0, 1], "softmax", outputs=3)  # type: ignore[arg-type]
"""


def test_its_types_say_what_it_does() -> None:
    with tempfile.TemporaryDirectory(prefix="probmap-") as folder:
        path = Path(folder) / "typed.py"
        path.write_text(TYPED, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", str(path)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stdout
