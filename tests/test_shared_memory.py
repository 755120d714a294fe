"""Tensors by system shared memory: with tritonclient, and with everything that can go wrong."""

import json
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
import tritonclient.http
import tritonclient.utils.shared_memory as memory
from tritonclient.http import InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException

from answers import present
from cases import built
from mappings.evaluate import evaluate
from oip_bodies import Array, parsed, rows
from server import RunningServer, running_server, shared_client
from service.wire.shared_memory import DIRECTORY, MAX_REGIONS

ROWS = rows(4, 100)
WANTED = present(evaluate(torch.from_numpy(ROWS), built("entmax")).probabilities).numpy()
BASE = "/v2/systemsharedmemory"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server("--allow-shared-memory") as started:
        yield started


@pytest.fixture
def client(server: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as started:
        yield started
        started.post(f"{BASE}/unregister")


@pytest.fixture
def shared() -> Iterator[Path]:
    """A shared memory object of the test's own, which holds the logits."""
    place = DIRECTORY / f"probmap-test-{uuid.uuid4().hex}"
    place.write_bytes(ROWS.tobytes())
    yield place
    place.unlink(missing_ok=True)


def register(client: httpx.Client, place: Path | str, **fields: Any) -> httpx.Response:
    key = f"/{place.name}" if isinstance(place, Path) else place
    document = {"key": key, "offset": 0, "byte_size": ROWS.nbytes, **fields}
    return client.post(f"{BASE}/region/region/register", json=document)


def infer(
    client: httpx.Client,
    *,
    shape: tuple[int, ...] = ROWS.shape,
    size: int = ROWS.nbytes,
    offset: int | None = None,
    outputs: Any = None,
    region: str = "region",
) -> httpx.Response:
    parameters = {"shared_memory_region": region, "shared_memory_byte_size": size}
    if offset is not None:
        parameters["shared_memory_offset"] = offset
    tensor = {"name": "logits", "datatype": "FP32", "shape": shape, "parameters": parameters}
    document = {"inputs": [tensor], "outputs": outputs}
    return client.post("/v2/models/entmax/infer", json=document)


def refused(response: httpx.Response, *words: str, status: int = 400) -> None:
    assert response.status_code == status, response.text
    for word in words:
        assert word in response.json()["error"], response.text


def test_tritonclient_passes_logits_and_answers_by_shared_memory(server: RunningServer) -> None:
    keys = [f"/probmap-{uuid.uuid4().hex}" for _ in range(2)]
    given = memory.create_shared_memory_region("given", keys[0], ROWS.nbytes)
    answer = memory.create_shared_memory_region("answer", keys[1], WANTED.nbytes)
    address = server.url.removeprefix("http://")
    try:
        with tritonclient.http.InferenceServerClient(address) as client:
            assert "system_shared_memory" in client.get_server_metadata()["extensions"]
            memory.set_shared_memory_region(given, [ROWS])
            client.register_system_shared_memory("given", keys[0], ROWS.nbytes)
            client.register_system_shared_memory("answer", keys[1], WANTED.nbytes)
            status = {one["name"]: one for one in client.get_system_shared_memory_status()}
            assert status["given"] == {
                "name": "given",
                "key": keys[0],
                "offset": 0,
                "byte_size": ROWS.nbytes,
            }
            tensor = InferInput("logits", list(ROWS.shape), "FP32")
            tensor.set_shared_memory("given", ROWS.nbytes)
            wish = InferRequestedOutput("probabilities")
            wish.set_shared_memory("answer", WANTED.nbytes)
            result = client.infer("entmax", [tensor], outputs=[wish])
            told = result.get_output("probabilities")
            assert told["parameters"] == {
                "shared_memory_region": "answer",
                "shared_memory_offset": 0,
                "shared_memory_byte_size": WANTED.nbytes,
            }
            assert "data" not in told
            found = memory.get_contents_as_numpy(answer, np.float32, told["shape"])
            assert found.tobytes() == WANTED.tobytes()
            client.unregister_system_shared_memory("given")
            assert [one["name"] for one in client.get_system_shared_memory_status()] == ["answer"]
            with pytest.raises(InferenceServerException, match="register it first"):
                client.infer("entmax", [tensor], outputs=[wish])
            client.unregister_system_shared_memory()
            assert client.get_system_shared_memory_status() == []
    finally:
        memory.destroy_shared_memory_region(given)
        memory.destroy_shared_memory_region(answer)


def test_logits_lie_anywhere_in_a_region_and_answers_are_written_beside_them(
    client: httpx.Client, shared: Path
) -> None:
    before, after = b"x" * 13, b"y" * 1000
    place = len(before) + ROWS.nbytes
    shared.write_bytes(before + ROWS.tobytes() + b"z" * WANTED.nbytes + after)
    # The region itself begins inside of the object.
    size = shared.stat().st_size - 5
    assert register(client, shared, offset=5, byte_size=size).status_code == 200
    region = {"shared_memory_region": "region", "shared_memory_byte_size": WANTED.nbytes + 9}
    wishes = [
        {"name": "probabilities", "parameters": {**region, "shared_memory_offset": place - 5}},
        {"name": "entropy", "parameters": {"binary_data": True}},
    ]
    head, found = parsed_beside(infer(client, offset=8, outputs=wishes))
    assert head["outputs"][0]["parameters"]["shared_memory_byte_size"] == WANTED.nbytes
    content = shared.read_bytes()
    assert content == before + ROWS.tobytes() + WANTED.tobytes() + after
    assert found["entropy"].shape == (4,)


def parsed_beside(response: httpx.Response) -> tuple[dict[str, Any], dict[str, Array]]:
    """An answer's JSON, and the tensors that are not in shared memory."""
    assert response.status_code == 200, response.text
    length = int(response.headers["Inference-Header-Content-Length"])
    head = json.loads(response.content[:length])
    found: dict[str, Array] = {}
    at = length
    for output in head["outputs"]:
        size = output["parameters"].get("binary_data_size")
        if size is not None:
            part = response.content[at : at + size]
            found[output["name"]] = np.frombuffer(part, np.float32).reshape(output["shape"])
            at += size
    return head, found


def test_classes_as_texts_and_status_can_be_shared_too(client: httpx.Client, shared: Path) -> None:
    shared.write_bytes(ROWS.tobytes() + bytes(100))
    register(client, shared, byte_size=ROWS.nbytes + 100)
    place = {
        "shared_memory_region": "region",
        "shared_memory_byte_size": 100,
        "shared_memory_offset": ROWS.nbytes,
    }
    response = infer(client, outputs=[{"name": "status", "parameters": place}])
    assert response.status_code == 200, response.text
    assert shared.read_bytes()[ROWS.nbytes :][:24] == b"\2\0\0\0ok" * 4


KEYS: list[tuple[str, str]] = [
    ("", "name"),
    ("/", "name"),
    ("//", "name"),
    ("/.", "name"),
    ("/..", "name"),
    ("/../etc/passwd", "without a slash"),
    ("../../etc/passwd", "without a slash"),
    ("/a/b", "without a slash"),
    ("/etc/passwd", "without a slash"),
    ("//etc", "without a slash"),
    ("/a\0b", "name"),
    ("/" + "x" * 256, "255 bytes"),
    ("/" + "é" * 128, "255 bytes"),
    ("/probmap-nothing-here", "No such file"),
]


@pytest.mark.parametrize(("key", "words"), KEYS, ids=lambda value: repr(value)[:24])
def test_a_key_that_names_no_object_of_the_directory_is_refused(
    client: httpx.Client, key: str, words: str
) -> None:
    refused(register(client, key), words)
    assert client.get(f"{BASE}/status").json() == []


def test_links_pipes_and_folders_are_no_objects(client: httpx.Client, shared: Path) -> None:
    other = shared.with_name(f"{shared.name}-other")
    makers: list[Callable[[], object]] = [
        lambda: other.symlink_to("/etc/passwd"),
        lambda: other.symlink_to(shared),
        lambda: os.mkfifo(other),
        lambda: other.mkdir(),
    ]
    for make in makers:
        make()
        try:
            refused(register(client, other), other.name)
        finally:
            other.rmdir() if other.is_dir() and not other.is_symlink() else other.unlink()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"byte_size": 0}, "byte_size"),
        ({"byte_size": -1}, "byte_size"),
        ({"byte_size": 1.0}, "byte_size"),
        ({"byte_size": None}, "byte_size"),
        ({"byte_size": ROWS.nbytes + 1}, "has 1,600 bytes"),
        ({"byte_size": 2**63 - 1}, "has 1,600 bytes"),
        ({"offset": 1}, "has 1,600 bytes"),
        ({"offset": 2**63 - 1}, "has 1,600 bytes"),
        ({"offset": -1}, "offset"),
        ({"offset": "0"}, "offset"),
        ({"key": None}, "key"),
        ({"key": 7}, "key"),
        ({"path": "/x"}, "path"),
    ],
    ids=str,
)
def test_a_region_that_is_not_there_cannot_be_registered(
    client: httpx.Client, shared: Path, fields: dict[str, Any], words: str
) -> None:
    refused(register(client, shared, **fields), words)
    assert client.get(f"{BASE}/status").json() == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"offset": 1}, "not inside"),
        ({"offset": ROWS.nbytes}, "not inside"),
        ({"offset": 2**63 - 1}, "not inside"),
        ({"offset": -1}, "shared_memory_offset"),
        ({"offset": 0.5}, "shared_memory_offset"),
        ({"size": ROWS.nbytes - 1}, "take 1,600 bytes"),
        ({"size": ROWS.nbytes + 4}, "take 1,600 bytes"),
        ({"shape": (4, 101)}, "take 1,616 bytes"),
        ({"shape": (4, 101), "size": 1616}, "not inside"),
        ({"shape": (2**4, 2**60 + 2)}, "bytes"),
        ({"region": "other"}, "register it first"),
        ({"region": "é🎲"}, "é🎲"),
        ({"region": 7}, "shared_memory_region"),
    ],
    ids=str,
)
def test_a_range_outside_its_region_is_refused(
    client: httpx.Client, shared: Path, change: dict[str, Any], words: str
) -> None:
    assert register(client, shared).status_code == 200
    refused(infer(client, **change), words)
    assert infer(client).status_code == 200


@pytest.mark.parametrize(
    ("size", "offset", "words"),
    [
        (ROWS.nbytes - 1, 0, "1,600 bytes, more than the 1,599"),
        (0, 0, "more than the 0"),
        (ROWS.nbytes, 1, "not inside"),
        (ROWS.nbytes + 1, 0, "not inside"),
        (2**63 - 1, 0, "not inside"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused(
    client: httpx.Client, shared: Path, size: int, offset: int, words: str
) -> None:
    register(client, shared)
    parameters = {
        "shared_memory_region": "region",
        "shared_memory_byte_size": size,
        "shared_memory_offset": offset,
    }
    wishes = [{"name": "probabilities", "parameters": parameters}]
    refused(infer(client, outputs=wishes), words)
    assert shared.read_bytes() == ROWS.tobytes()


WISH = {
    "name": "probabilities",
    "parameters": {"shared_memory_region": "region", "shared_memory_byte_size": ROWS.nbytes},
}


@pytest.mark.parametrize("left", [0, 1, ROWS.nbytes - 1])
def test_a_region_that_shrank_is_an_error_and_the_server_lives(
    client: httpx.Client, server: RunningServer, shared: Path, left: int
) -> None:
    register(client, shared)
    os.truncate(shared, left)
    refused(infer(client), "has become smaller than the region")
    refused(infer(client, outputs=[WISH]), "has become smaller than the region")
    assert shared.stat().st_size == left
    assert server.process.poll() is None
    shared.write_bytes(ROWS.tobytes())
    assert parsed(infer(client))[1]["probabilities"].tobytes() == WANTED.tobytes()


def test_a_region_that_vanished_is_an_error_and_can_be_registered_anew(
    client: httpx.Client, shared: Path
) -> None:
    register(client, shared)
    shared.unlink()
    refused(infer(client), "was removed")
    shared.write_bytes(ROWS.tobytes())
    refused(infer(client), "was removed")
    refused(register(client, shared), "registered already")
    client.post(f"{BASE}/region/region/unregister")
    assert register(client, shared).status_code == 200
    assert infer(client).status_code == 200


def test_regions_that_shrink_at_any_time_never_kill_the_server(
    client: httpx.Client, server: RunningServer, shared: Path
) -> None:
    array = rows(16, 20_000)
    shared.write_bytes(array.tobytes())
    register(client, shared, byte_size=array.nbytes)
    statuses = set()
    for turn in range(60):
        os.truncate(shared, array.nbytes if turn % 2 else (turn * 7919) % array.nbytes)
        statuses.add(infer(client, shape=array.shape, size=array.nbytes).status_code)
    assert statuses == {200, 400}
    assert server.process.poll() is None


def test_names_may_hold_any_unicode_and_slashes(client: httpx.Client, shared: Path) -> None:
    for name in ("é🎲", "a/b/c", "a b", "%2e%2e", "status"):
        path = f"{BASE}/region/{name.replace('%', '%25')}"
        document = {"key": f"/{shared.name}", "byte_size": 8}
        assert client.post(f"{path}/register", json=document).status_code == 200
        (told,) = client.get(f"{path}/status").json()
        assert told["name"] == name
        assert client.post(f"{path}/unregister").status_code == 200
        refused(client.get(f"{path}/status"), "registered", status=404)
        assert client.post(f"{path}/unregister").status_code == 200


def test_there_is_a_most_of_regions_and_unregistering_closes_them(
    client: httpx.Client, server: RunningServer, shared: Path
) -> None:
    def open_files() -> int:
        return len(os.listdir(f"/proc/{server.process.pid}/fd"))

    before = open_files()
    document = {"key": f"/{shared.name}", "byte_size": 8}
    answers = [
        client.post(f"{BASE}/region/{number}/register", json=document)
        for number in range(MAX_REGIONS + 1)
    ]
    assert {answer.status_code for answer in answers[:-1]} == {200}
    refused(answers[-1], "unregister some")
    assert open_files() >= before + MAX_REGIONS
    assert client.post(f"{BASE}/unregister").status_code == 200
    assert open_files() <= before + 2
    for number in range(50):
        refused(register(client, shared, byte_size=ROWS.nbytes + number + 1), "has 1,600 bytes")
    assert open_files() <= before + 2


def test_shared_memory_is_off_unless_it_is_allowed() -> None:
    client = shared_client()
    assert "system_shared_memory" not in client.get("/v2").json()["extensions"]
    for response in (
        client.get(f"{BASE}/status"),
        client.get(f"{BASE}/region/x/status"),
        client.post(f"{BASE}/region/x/register", json={"key": "/x", "byte_size": 1}),
        client.post(f"{BASE}/unregister"),
    ):
        refused(response, "--allow-shared-memory", "PROBMAP_ALLOW_SHARED_MEMORY", status=404)
    refused(infer(client), "--allow-shared-memory")
    tensor = {"name": "logits", "datatype": "FP32", "shape": [1, 2], "data": [0, 0]}
    document = {"inputs": [tensor], "outputs": [WISH]}
    refused(client.post("/v2/models/softmax/infer", json=document), "--allow-shared-memory")


def test_the_variable_allows_it_too() -> None:
    with running_server(PROBMAP_ALLOW_SHARED_MEMORY="true") as server:
        assert httpx.get(f"{server.url}{BASE}/status").json() == []
