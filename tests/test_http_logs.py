"""The log of a running server: a line a request, which machines and people can read."""

import json
import re
import socket
from typing import Any

import httpx
import pytest

from server import RunningServer, running_server
from waiting import until

SECRET = 0.123454321


def logged(server: RunningServer, request_id: str) -> list[str]:
    """The lines that name a request, once there is one."""
    until(lambda: request_id in server.output)
    return [line for line in server.output.splitlines() if request_id in line]


def asked(server: RunningServer, request_id: str, **fields: Any) -> httpx.Response:
    body = {"logits": [[SECRET, 2, 3]] * 2, "mapping": "entmax", **fields}
    headers = {"x-request-id": request_id}
    return httpx.post(f"{server.url}/v1/map", json=body, headers=headers, timeout=30)


def test_json_lines_tell_what_was_asked_and_what_became_of_it() -> None:
    with running_server("--log-format", "json") as server:
        asked(server, "good")
        (line,) = logged(server, "good")
        found = json.loads(line)
        ms = found.pop("ms")
        assert 0 < ms < 30_000
        told = {
            "request_id": "good", "method": "POST", "route": "/v1/map", "code": 200,
            "mapping": "entmax", "rows": 2, "classes": 3,
        }  # fmt: skip
        assert told.items() <= found.items()
        asked(server, "bad", logits=[[None]])
        (line,) = logged(server, "bad")
        assert {"code": 422, "error": "invalid_row"}.items() <= json.loads(line).items()
        asked(server, "worse", mapping="nope")
        (line,) = logged(server, "worse")
        assert {"code": 404, "error": "unknown_name"}.items() <= json.loads(line).items()
        # Every line is JSON, but for the banner.
        lines = server.output.splitlines()
        first = next(place for place, text in enumerate(lines) if text.startswith("{"))
        assert all(json.loads(text) for text in lines[first:])
        assert str(SECRET) not in server.output


def test_text_lines_say_the_same() -> None:
    with running_server() as server:
        asked(server, "good")
        (line,) = logged(server, "good")
        assert re.search(r"POST /v1/map 200 [\d.]+ ms good entmax 2 × 3$", line)
        asked(server, "bad", mapping="nope")
        (line,) = logged(server, "bad")
        assert re.search(r"POST /v1/map 404 [\d.]+ ms bad unknown_name$", line)
        assert str(SECRET) not in server.output


def test_probes_and_collectors_are_told_only_when_debugging() -> None:
    for level, seen in (("info", False), ("debug", True)):
        with running_server("--log-level", level) as server:
            for path in ("/health", "/v2/health/ready", "/metrics"):
                httpx.get(f"{server.url}{path}", headers={"x-request-id": "probe"})
            asked(server, "last")
            logged(server, "last")
            assert ("probe" in server.output) is seen


@pytest.mark.parametrize(
    "target", ["/a%0aFORGED", "/a%0d%0aFORGED", "/%1b[31mFORGED", "/" + "x" * 5000 + "FORGED"]
)
def test_no_caller_can_write_a_line_of_its_own(target: str) -> None:
    with running_server() as server:
        httpx.get(f"{server.url}{target}", headers={"x-request-id": "forger"})
        (line,) = logged(server, "forger")
        assert not line.startswith("FORGED")
        assert "\x1b" not in line
        assert len(line) < 500


def test_a_request_id_that_could_break_a_line_is_not_taken() -> None:
    with running_server() as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
            head = b"GET /nope HTTP/1.1\r\nHost: x\r\nX-Request-Id: a b\x07FORGED\r\n\r\n"
            connection.sendall(head)
            assert connection.recv(65536).startswith(b"HTTP/1.1 4")
        asked(server, "last")
        logged(server, "last")
        assert "FORGED" not in server.output
