"""What web pages may do, of a real server: nothing from elsewhere, unless it is named."""

import base64
import hashlib
import re
from collections.abc import Iterator

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from server import RunningServer, running_server, shared_server

PAGE = "https://pages.example"
KEY = "a-key"
REQUEST = {"logits": [0, 0.5, 1], "mapping": "sparsemax"}
ASKS_FIRST = {
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type,x-request-timeout-ms",
}


@pytest.fixture(scope="module")
def named() -> Iterator[RunningServer]:
    """A server with keys that names one page."""
    with running_server(
        "--cors-origin", f"{PAGE},http://other.example:8080", PROBMAP_API_KEY=KEY
    ) as server:
        yield server


def allowed(response: httpx.Response) -> dict[str, str]:
    """What an answer allows pages of other sites."""
    return {name: value for name, value in response.headers.items() if "access-control" in name}


def test_without_a_setting_no_page_is_told_anything() -> None:
    url = f"{shared_server().url}/v1/map"
    response = httpx.post(url, json=REQUEST, headers={"origin": PAGE})
    assert response.status_code == 200
    assert not allowed(response)
    response = httpx.options(url, headers={"origin": PAGE, **ASKS_FIRST})
    assert response.status_code == 405
    assert not allowed(response)


def test_a_named_page_may_ask(named: RunningServer) -> None:
    url = f"{named.url}/v1/map"
    # A browser asks without the key whether it may send it.
    before = httpx.options(url, headers={"origin": PAGE, **ASKS_FIRST})
    assert before.status_code == 200
    assert before.headers["access-control-allow-origin"] == PAGE
    assert "POST" in before.headers["access-control-allow-methods"]
    for name in ASKS_FIRST["access-control-request-headers"].split(","):
        assert name in before.headers["access-control-allow-headers"]
    headers = {"origin": PAGE, "authorization": f"Bearer {KEY}"}
    response = httpx.post(url, json=REQUEST, headers=headers)
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == PAGE
    assert response.headers["vary"] == "Origin"
    assert "x-request-id" in response.headers["access-control-expose-headers"].lower()
    assert "access-control-allow-credentials" not in response.headers


@pytest.mark.parametrize(
    ("path", "status"), [("/v1/map", 401), ("/v2/health/live", 200)], ids=["error", "public"]
)
def test_a_named_page_can_read_every_answer(named: RunningServer, path: str, status: int) -> None:
    response = httpx.get(named.url + path, headers={"origin": PAGE})
    assert response.status_code == status
    assert response.headers["access-control-allow-origin"] == PAGE


@pytest.mark.parametrize(
    "origin", ["https://elsewhere.example", "http://pages.example", f"{PAGE}.evil.example", "null"]
)
def test_another_page_may_not_ask(named: RunningServer, origin: str) -> None:
    url = f"{named.url}/v1/map"
    before = httpx.options(url, headers={"origin": origin, **ASKS_FIRST})
    assert before.status_code == 400
    assert "access-control-allow-origin" not in before.headers
    headers = {"origin": origin, "authorization": f"Bearer {KEY}"}
    response = httpx.post(url, json=REQUEST, headers=headers)
    assert "access-control-allow-origin" not in response.headers


def status_of_handshake(server: RunningServer, origin: str | None, key: str = "") -> int:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    try:
        with connect(
            f"ws{server.url[4:]}/v1/ws",
            origin=None if origin is None else Origin(origin),
            additional_headers=headers,
        ):
            return 101
    except InvalidStatus as error:
        return error.response.status_code


def test_a_websocket_is_for_pages_of_the_server_and_for_programs() -> None:
    server = shared_server()
    assert status_of_handshake(server, None) == 101
    assert status_of_handshake(server, server.url) == 101
    assert status_of_handshake(server, PAGE) == 403
    assert status_of_handshake(server, "null") == 403
    assert status_of_handshake(server, server.url + "1") == 403


def test_a_websocket_is_for_named_pages_too_if_they_have_a_key(named: RunningServer) -> None:
    assert status_of_handshake(named, PAGE, KEY) == 101
    assert status_of_handshake(named, PAGE) == 401
    assert status_of_handshake(named, "https://elsewhere.example", KEY) == 403


@pytest.mark.parametrize("path", ["/v1/mappings", "/nope", "/metrics", "/docs", "/v2", "/"])
def test_every_answer_is_taken_for_what_it_is(path: str) -> None:
    headers = httpx.get(shared_server().url + path).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    policies = headers.get_list("content-security-policy")
    assert len(policies) == 1
    assert "frame-ancestors 'none'" in policies[0]
    if not headers.get("content-type", "").startswith("text/html"):
        assert "default-src 'none'" in policies[0]
    assert "server" not in headers


def test_the_documentation_loads_from_here_and_runs_its_own_script_alone() -> None:
    response = httpx.get(f"{shared_server().url}/docs")
    policy = response.headers["content-security-policy"]
    scripts = next(part for part in policy.split("; ") if part.startswith("script-src"))
    inline = re.findall(r"<script>(.*?)</script>", response.text, re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in inline]
    assert len(hashes) == 1
    assert scripts == f"script-src 'self' 'sha256-{hashes[0]}'"
    assert not re.search(r"(src|href)=\"(https?:)?//", response.text)
