"""Keys, of a real server: everything but the public paths asks for one, and files are re-read."""

import hmac
import importlib
import os
import pkgutil
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

import probmap_client
from server import ROOT, START_SECONDS, RunningServer, running_server
from service import routes
from service.keys import Keys
from service.settings import Settings

GIVEN, ALSO_GIVEN, OF_FILE = "given-Key+1/=~", "also-given", "of-the-file"
PUBLIC = {"/health", "/v2/health/live", "/v2/health/ready", "/docs", "/openapi.json"}
REQUEST = {"logits": [0, 0.5, 1], "mapping": "sparsemax"}


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with keys from a flag, a variable and a file, that tells all it can in its log."""
    path = tmp_path_factory.mktemp("keys") / "keys.txt"
    path.write_text(f"# of the file\n\n  {OF_FILE}  \n")
    flags = ["--api-key", GIVEN, "--api-key", ALSO_GIVEN, "--api-key-file", str(path)]
    with running_server(
        *flags, "--public", "live,ready", "--public", "docs", "--log-level", "debug"
    ) as server:
        yield server


def bearer(key: str, scheme: str = "Bearer") -> dict[str, str]:
    return {"authorization": f"{scheme} {key}"}


def ask(server: RunningServer, **options: Any) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/map", json=REQUEST, timeout=30, **options)


def assert_unauthorized(response: httpx.Response) -> None:
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == 'Bearer realm="probmap"'
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["code"] == "unauthorized"
    assert problem["error"] == problem["detail"]
    assert problem["request_id"] == response.headers["x-request-id"]


@pytest.mark.parametrize("key", [GIVEN, ALSO_GIVEN, OF_FILE])
@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_each_key_is_right(keyed: RunningServer, key: str, scheme: str) -> None:
    response = ask(keyed, headers=bearer(key, scheme))
    assert response.json()["probabilities"] == [[0.0, 0.25, 0.75]]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer"},
        bearer(GIVEN[:-1]),
        bearer(GIVEN + "x"),
        bearer(GIVEN.upper()),
        bearer(f"{GIVEN},{ALSO_GIVEN}"),
        bearer("# of the file"),
        bearer(GIVEN, "Basic"),
        {"authorization": GIVEN},
        {"x-api-key": GIVEN},
        {"cookie": f"key={GIVEN}"},
    ],
    ids=[
        "none",
        "empty",
        "short",
        "long",
        "case",
        "both",
        "comment",
        "basic",
        "bare",
        "x",
        "cookie",
    ],
)
def test_anything_else_is_unauthorized(keyed: RunningServer, headers: dict[str, str]) -> None:
    assert_unauthorized(ask(keyed, headers=headers))


def test_two_keys_at_once_are_none(keyed: RunningServer) -> None:
    both = [("authorization", f"Bearer {GIVEN}"), ("authorization", "Bearer wrong")]
    assert_unauthorized(ask(keyed, headers=both))


def test_bytes_that_are_no_text_are_no_key(keyed: RunningServer) -> None:
    assert_unauthorized(ask(keyed, headers={"authorization": b"Bearer \xff\xfe"}))


def test_a_key_in_the_address_is_none(keyed: RunningServer) -> None:
    assert_unauthorized(ask(keyed, params={"api_key": GIVEN, "access_token": GIVEN}))


def test_a_large_body_without_a_key_is_not_read(keyed: RunningServer) -> None:
    response = httpx.post(f"{keyed.url}/v1/map", content=b" " * 5_000_000, timeout=30)
    assert_unauthorized(response)
    assert response.headers["connection"] == "close"


def every_request() -> Iterator[tuple[str, str]]:
    """A method and a path of every route that there is."""
    yield "GET", "/openapi.json"
    for found in pkgutil.iter_modules(routes.__path__):
        module = importlib.import_module(f"{routes.__name__}.{found.name}")
        for route in module.router.routes if hasattr(module, "router") else ():
            path = re.sub(r"{(\w+)}", lambda found: NAMES.get(found[1], "softmax"), route.path)
            # A WebSocket's has none, and is asked for as anything else is.
            for method in sorted(getattr(route, "methods", ["GET"])):
                yield method, path


NAMES = {"version": "1", "asset": "swagger-ui.css"}


def test_everything_but_the_public_paths_asks_for_a_key(keyed: RunningServer) -> None:
    found, closed = set(), 0
    with httpx.Client(base_url=keyed.url, timeout=30) as client:
        for method, path in every_request():
            response = client.request(method, path)
            if path in PUBLIC or path.startswith("/docs/"):
                assert response.status_code == 200, (method, path)
                found.add(path)
            else:
                assert response.status_code == 401, (method, path)
                closed += 1
    assert found > PUBLIC
    assert closed > 20


@pytest.mark.parametrize(
    "path",
    [
        *["/nope", "/", "/health/", "//health", "/health%0a", "/v2/health/liveness", "/metrics/x"],
        *["/docs/../v1/mappings", "/docs%2f..%2fmetrics", "/%68ealthy", "/healthx", "/v1/map"],
    ],
)
def test_what_only_looks_like_a_public_path_asks_for_a_key(keyed: RunningServer, path: str) -> None:
    # As it stands: httpx would resolve the dots.
    request = httpx.Request("GET", keyed.url, extensions={"target": path.encode()})
    with httpx.Client(timeout=30) as client:
        response = client.send(request)
        assert response.status_code == (404 if path.startswith(("/docs/", "/docs%2f")) else 401)


def test_public_paths_are_public_to_readers_alone(keyed: RunningServer) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert httpx.request(method, f"{keyed.url}/health").status_code == 401


def test_what_is_public_can_be_chosen() -> None:
    paths = {
        "live": "/health",
        "ready": "/v2/health/ready",
        "metrics": "/metrics",
        "docs": "/docs",
        "playground": "/",
    }
    with running_server("--public", "ready,metrics,playground", PROBMAP_API_KEY=GIVEN) as server:
        opened = {
            name for name, path in paths.items() if httpx.get(server.url + path).status_code < 400
        }
        script = httpx.get(f"{server.url}/playground/any/main.js")
    assert opened == {"ready", "metrics", "playground"}
    assert script.headers["content-type"].startswith("text/javascript")


def test_a_websocket_asks_for_a_key(keyed: RunningServer) -> None:
    address = f"ws{keyed.url[4:]}/v1/ws"
    refused = metric_of(keyed)
    for headers in ({}, bearer("wrong")):
        with (
            pytest.raises(InvalidStatus) as failure,
            connect(address, additional_headers=headers),
        ):
            pass
        assert failure.value.response.status_code == 401
        assert failure.value.response.headers["WWW-Authenticate"].startswith("Bearer")
        assert b'"code":"unauthorized"' in failure.value.response.body
    assert metric_of(keyed) == refused + 2
    with connect(address, additional_headers=bearer(GIVEN)) as socket:
        socket.send('{"logits": [0, 0.5, 1], "mapping": "sparsemax"}')
        assert '"probabilities":[[0.0,0.25,0.75]]' in str(socket.recv(30))


def metric_of(server: RunningServer) -> float:
    text = httpx.get(f"{server.url}/metrics", headers=bearer(GIVEN)).text
    found = re.search(r'^probmap_failed_total{reason="unauthorized"} (\S+)$', text, re.M)
    assert found is not None
    return float(found[1])


def test_the_client_shows_its_key(keyed: RunningServer) -> None:
    logits = np.array([[0, 0.5, 1]])
    with probmap_client.Client(keyed.url, api_key=OF_FILE) as client:
        answer = client.map(logits, "sparsemax")
        np.testing.assert_array_equal(answer.probabilities, [[0, 0.25, 0.75]])
        assert next(iter(client.stream([logits], "softmax"))).probabilities.sum() == pytest.approx(
            1
        )
    for key in (None, "wrong"):
        with (
            probmap_client.Client(keyed.url, api_key=key) as client,
            pytest.raises(probmap_client.Unauthorized, match="key"),
        ):
            client.map(logits, "sparsemax")


def test_the_document_says_where_a_key_is_asked_for(keyed: RunningServer) -> None:
    document = httpx.get(f"{keyed.url}/openapi.json").json()
    assert document["components"]["securitySchemes"]["key"] == {"type": "http", "scheme": "bearer"}
    assert document["security"] == [{"key": []}]
    operations = {
        (method, path): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    opened = {path for (_, path), operation in operations.items() if "security" in operation}
    assert opened == {"/health", "/v2/health/live", "/v2/health/ready"}


def test_no_key_is_logged(keyed: RunningServer) -> None:
    for key in (GIVEN, OF_FILE, "wrong-but-still-a-secret"):
        ask(keyed, headers={**bearer(key), "x-request-id": f"of-{len(key)}"})
    until = time.monotonic() + 10
    while f"of-{len('wrong-but-still-a-secret')}" not in keyed.output:
        assert time.monotonic() < until
        time.sleep(0.05)
    for key in (GIVEN, ALSO_GIVEN, OF_FILE, "wrong-but-still"):
        assert key not in keyed.output


def test_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("old\n")
    with running_server("--api-key-file", str(path)) as server:

        def becomes(key: str, status: int) -> None:
            until = time.monotonic() + 20
            while ask(server, headers=bearer(key)).status_code != status:
                assert time.monotonic() < until, (key, status, server.output)
                time.sleep(0.1)

        def logged(text: str) -> None:
            until = time.monotonic() + 20
            while text not in server.output:
                ask(server, headers=bearer("any"))
                assert time.monotonic() < until, server.output
                time.sleep(0.1)

        becomes("old", 200)
        path.write_text("old\nnew\n")
        becomes("new", 200)
        becomes("old", 200)
        # As a secret that is mounted changes: another file takes its place.
        (tmp_path / "next").write_text("new\n")
        os.replace(tmp_path / "next", path)
        becomes("old", 401)
        becomes("new", 200)
        path.write_text("newer key\n")
        logged("line 1 of")
        becomes("new", 200)
        path.unlink()
        logged("No such file")
        becomes("new", 200)
        path.write_text("")
        becomes("new", 401)
        path.write_text("last\n")
        becomes("last", 200)
        assert "newer key" not in server.output


def refused(*flags: str, **environment: str) -> tuple[int, str]:
    """The exit code and the complaint of a server that does not start."""
    done = subprocess.run(
        [sys.executable, "-m", "service.cli", "serve", "--port", "0", *flags],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **environment},
        timeout=START_SECONDS,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


def test_a_variable_without_a_key_opens_nothing() -> None:
    code, complaint = refused(PROBMAP_API_KEY="")
    assert code == 2
    assert "--api-key (PROBMAP_API_KEY)" in complaint


def test_a_flag_that_is_no_key_is_refused_and_not_repeated() -> None:
    code, complaint = refused("--api-key", "schlüssel")
    assert code == 2
    assert "visible ASCII" in complaint
    assert "schl" not in complaint


@pytest.mark.parametrize(
    ("text", "words"),
    [("# none\n\n", "holds no key"), ("good\nno good\n", "line 2 of"), ("", "one a line")],
    ids=["comment", "blank", "empty"],
)
def test_a_file_without_keys_opens_nothing(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    code, complaint = refused("--api-key-file", str(path))
    assert code == 2
    assert words in complaint
    assert "no good" not in complaint


def test_a_file_that_is_not_there_opens_nothing(tmp_path: Path) -> None:
    code, complaint = refused("--api-key-file", str(tmp_path / "keys"))
    assert code == 1
    assert "No such file" in complaint


def test_every_key_is_compared_whichever_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    compare = hmac.compare_digest

    def counting(one: bytes, other: bytes) -> bool:
        compared.append(len(other))
        return compare(one, other)

    monkeypatch.setattr(hmac, "compare_digest", counting)
    held = Keys(Settings.model_validate({"api_key": "first,second,third"}))
    for key in (b"first", b"third", b"", b"x" * 10_000):
        compared.clear()
        assert held.holds(key) is (key in (b"first", b"third"))
        # Digests of one length, so that not even the length of a key shows.
        assert compared == [32, 32, 32]
