"""The examples in other languages, against a real server: numbers, refusals, exit codes.

Their commands are those of examples/README.md; one whose tool is not installed is skipped.
"""

import json
import math
import re
import subprocess
from pathlib import Path

import httpx
import pytest

from example_commands import (
    COMMANDS,
    EXAMPLES,
    README,
    RUN_SECONDS,
    SPARSEMAX,
    Done,
    Example,
    answering,
    assert_refused,
    built,
    detail_of,
    environment,
    nobody,
)
from server import shared_server

TELLERS = ("rust/probmap.rs", "cpp/probmap.cpp", "go/probmap.go", "java/Probmap.java")
"""The program that is told four times."""


@pytest.fixture(scope="module", params=TELLERS)
def teller(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Example:
    return built(request.param, tmp_path_factory.mktemp("built"))


def shown(rows: list[list[float]]) -> str:
    """Rows as the tellers print them."""
    return "".join(" ".join(f"{p:.4f}" for p in row) + "\n" for row in rows)


def softmax(z: list[float]) -> list[float]:
    masses = [math.exp(one) for one in z]
    return [mass / math.fsum(masses) for mass in masses]


def test_every_example_is_listed_with_its_command() -> None:
    there = {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*") if path.is_file()}
    there = {name for name in there if "__pycache__" not in name} - {"README.md"}
    assert set(re.findall(r"\]\(([^)]+)\)", README)) == there
    assert set(COMMANDS) == there - {"javascript/probmap.mjs", "javascript/serve.mjs"}


def test_the_tellers_print_the_closed_form_of_sparsemax(teller: Example) -> None:
    done = teller.run(shared_server().url)
    assert done == Done(0, shown(SPARSEMAX), "")
    assert done.out in README


def test_the_tellers_print_the_closed_form_of_softmax(teller: Example) -> None:
    done = teller.run(shared_server().url, "softmax")
    assert done == Done(0, shown([softmax([0, 0.5, 1]), softmax([0.25, -math.inf, 0.75])]), "")


def test_the_tellers_repeat_what_the_server_says_of_an_unknown_mapping(teller: Example) -> None:
    done = teller.run(shared_server().url, "sparsemacks")
    detail = detail_of(httpx.post(f"{shared_server().url}/v2/models/sparsemacks/infer", json={}))
    assert_refused(done, f"probmap: {detail} (")
    assert re.search(r"probmap: there is no mapping 'sparsemacks'; there are \w+, \w+, ", README)


def test_the_tellers_repeat_what_the_server_says_of_a_missing_parameter(teller: Example) -> None:
    assert_refused(teller.run(shared_server().url, "weighted_softmax"), "weights is missing")


def test_the_tellers_read_a_detail_with_quotes_and_backslashes(teller: Example) -> None:
    detail = 'the name "a\\b", or "detail":"c", is none'
    document = {"title": 'not "detail":"this"', "detail": detail, "code": "scripted"}
    body = json.dumps(document, separators=(",", ":")).encode()
    with answering(400, body, Content_Type="application/problem+json") as url:
        assert_refused(teller.run(url), f"probmap: {detail} (")


def test_the_tellers_say_what_something_else_at_the_address_answers(teller: Example) -> None:
    with answering(502, b"<h1>Bad gateway</h1>", Content_Type="text/html") as url:
        assert_refused(teller.run(url), "502", "Bad gateway")


@pytest.mark.parametrize("missing", [1, 12, 24])
def test_the_tellers_refuse_an_answer_that_lacks_numbers(teller: Example, missing: int) -> None:
    body = b"{}" + bytes(24 - missing)
    with answering(200, body, Inference_Header_Content_Length="2") as url:
        assert_refused(teller.run(url))


def test_the_tellers_refuse_an_answer_without_tensors(teller: Example) -> None:
    with answering(200, b"{}", Content_Type="application/json") as url:
        assert_refused(teller.run(url))


def test_the_tellers_say_that_nobody_is_there(teller: Example) -> None:
    with nobody() as url:
        assert_refused(teller.run(url), url.removeprefix("http://"))


def test_curl_prints_closed_forms(tmp_path: Path) -> None:
    done = built("curl.sh", tmp_path).run(shared_server().url)
    assert done.code == 0, done
    parts = re.split(r"^== .*\n", done.out, flags=re.M)
    mapped, drawn, binary, tensors, stream, error = (part.strip() for part in parts[1:])
    assert json.loads(mapped)["probabilities"] == SPARSEMAX
    for row, tokens in zip(SPARSEMAX, json.loads(drawn)["tokens"], strict=True):
        assert len(tokens) == 6
        assert all(row[token] > 0 for token in tokens)
    assert binary == shown(SPARSEMAX[:1]).strip()
    assert tensors == shown(SPARSEMAX).strip()
    first, second, third, last = map(json.loads, stream.splitlines())
    assert first["probabilities"] == [[0, 0.25, 0.75]]
    assert second["probabilities"] == [[0, 0, 1]]
    assert third["error"]["detail"] == "temperature should be a valid number"
    assert last == {"done": True, "lines": 3, "failed": 1}
    document, exits = error.splitlines()
    assert json.loads(document)["detail"] == "alpha should be less than or equal to 16"
    assert exits == "curl exits 22"


def test_curl_ends_with_the_problem_document_when_the_server_says_no(tmp_path: Path) -> None:
    done = built("curl.sh", tmp_path).run(shared_server().url, "sparsemacks")
    assert done.code == 22
    assert json.loads(done.out.splitlines()[-1])["code"] == "unknown_name"


def test_curl_ends_when_nobody_is_there(tmp_path: Path) -> None:
    with nobody() as url:
        done = built("curl.sh", tmp_path).run(url)
    assert done.code == 7
    assert "curl: (7)" in done.err


def test_curl_leaves_nothing_behind(tmp_path: Path) -> None:
    command = built("curl.sh", tmp_path).told(shared_server().url)
    for more, code in ([], 0), (["sparsemacks"], 22):
        done = subprocess.run(
            [*command, *more],
            cwd=EXAMPLES.parent,
            env={**environment(), "TMPDIR": str(tmp_path)},
            capture_output=True,
            timeout=RUN_SECONDS,
            check=False,
        )
        assert done.returncode == code
        assert list(tmp_path.iterdir()) == []
