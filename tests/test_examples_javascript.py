"""The examples in JavaScript, against a real server: the module, its demonstration and its page."""

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from playwright.sync_api import expect

from browser_page import context
from example_commands import (
    EXAMPLES,
    RUN_SECONDS,
    SPARSEMAX,
    Done,
    answering,
    assert_refused,
    built,
    detail_of,
    environment,
    nobody,
)
from server import RunningServer, faulty_server, map_logits, shared_server

DEMO = "javascript/demo.mjs"


def demonstrated(done: Done) -> dict[str, str]:
    """What the demo printed, by the first word or two of each line."""
    assert (done.code, done.err) == (0, "")
    lines = re.findall(r"^(stream \d|\w+) (.*)$", done.out, re.M)
    return dict(lines)


def assert_demonstrated(done: Done) -> None:
    found = demonstrated(done)
    assert json.loads(found["map"]) == SPARSEMAX
    for row, tokens in zip(SPARSEMAX, json.loads(found["sample"]), strict=True):
        assert len(tokens) == 5
        assert all(row[token] > 0 for token in tokens)
    # z = (0, 1/4, 1/2) and (1/2, −∞, 3/2), so τ = −1/12 and 1/2.
    wanted = [1 / 12, 1 / 3, 7 / 12, 0, 0, 1]
    assert [float(p) for p in found["probabilities"].split()] == pytest.approx(wanted, rel=1e-6)
    assert found["support_offsets"] == "0 3 4"
    assert found["support_indices"] == "2 1 0 2"
    assert json.loads(found["stream 0"]) == [[0, 0.25, 0.75]]
    assert json.loads(found["stream 1"]) == [[0, 0, 1]]
    assert json.loads(found["stream 2"]) == "temperature should be a valid number"


def test_the_javascript_demo_prints_closed_forms(tmp_path: Path) -> None:
    assert_demonstrated(built(DEMO, tmp_path).run(shared_server().url))


def test_the_javascript_demo_says_why_not(tmp_path: Path) -> None:
    demo = built(DEMO, tmp_path)
    detail = detail_of(map_logits(logits=[1], mapping="sparsemacks"))
    refused = demo.run(shared_server().url, "sparsemacks")
    assert_refused(refused, f"probmap: {detail} (unknown_name)")
    with nobody() as url:
        assert_refused(demo.run(url), url.removeprefix("http://"))
    with answering(502, b"<h1>Bad gateway</h1>", Content_Type="text/html") as url:
        assert_refused(demo.run(url), "502", "Bad gateway")


def scripted(script: str, url: str, tmp_path: Path) -> Any:
    """What a script that imports the module prints, as JSON."""
    built(DEMO, tmp_path)
    module = (EXAMPLES / "javascript" / "probmap.mjs").as_uri()
    head = f'import {{ Probmap, ProbmapError }} from "{module}"; const url = "{url}";\n'
    done = subprocess.run(
        ["node", "--input-type=module", "--eval", head + script],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
        env=environment(),
    )
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


INFER = """
const logits = Float32Array.from({ length: 7 * 33 }, (_, i) => Math.fround(Math.sin(i) * 5));
const outputs = ["probabilities", "support_indices", "support_offsets", "entropy"];
const found = await new Probmap(url + "/").infer("softmax", logits, { rows: 7, outputs });
const lists = Object.entries(found).map(([name, array]) => [name, Array.from(array, Number)]);
console.log(JSON.stringify({ logits: Array.from(logits), ...Object.fromEntries(lists) }));
"""


def test_javascript_sends_and_reads_float32_as_it_lies_in_memory(tmp_path: Path) -> None:
    found = scripted(INFER, shared_server().url, tmp_path)
    logits = np.array(found["logits"], np.float32).astype(np.float64).reshape(7, 33)
    masses = np.exp(logits - logits.max(1, keepdims=True))
    wanted = masses / masses.sum(1, keepdims=True)
    got = np.array(found["probabilities"]).reshape(7, 33)
    np.testing.assert_allclose(got, wanted, rtol=1e-6)
    np.testing.assert_allclose(found["entropy"], -(wanted * np.log(wanted)).sum(1), rtol=1e-6)
    assert found["support_offsets"] == [33 * row for row in range(8)]
    order = np.argsort(-logits, axis=1, kind="stable")
    assert found["support_indices"] == order.reshape(-1).tolist()


ERROR = """
try {
  await new Probmap(url).map({ logits: [[1, 2], [3, null], [null, null]], mapping: "softmax" });
} catch (error) {
  const { name, message, code, status, requestId, errors } = error;
  const isOne = error instanceof ProbmapError && error instanceof Error;
  console.log(JSON.stringify({ isOne, name, message, code, status, requestId, errors }));
}
"""


def test_javascript_errors_carry_the_problem_document(tmp_path: Path) -> None:
    found = scripted(ERROR, shared_server().url, tmp_path)
    document = map_logits(logits=[[1, 2], [3, None], [None, None]], mapping="softmax").json()
    assert found.pop("requestId")
    assert found == {
        "isOne": True,
        "name": "ProbmapError",
        "message": document["detail"],
        "code": "invalid_row",
        "status": 422,
        "errors": document["errors"],
    }


STREAM = """
const slow = { name: "faulty", fault: "slow", seconds: 1.5 };
const requests = [
  { logits: [1, 2], mapping: "softmax" },
  { logits: [1, 2, 3], mapping: slow },
  { logits: [1, 2, 3, 4], mapping: slow },
];
const moments = [];
for await (const answer of new Probmap(url).stream(requests)) {
  moments.push([answer.index, performance.now() / 1000]);
  if (answer.index === 1) break;
}
console.log(JSON.stringify(moments));
"""


@pytest.fixture(scope="module")
def slow_server() -> Iterator[RunningServer]:
    with faulty_server() as running:
        yield running


@pytest.mark.parametrize("way", ["direct", "forwarded"])
def test_javascript_reads_a_stream_as_it_comes_and_may_leave_it(
    way: str, slow_server: RunningServer, tmp_path: Path
) -> None:
    if way == "direct":
        found = scripted(STREAM, slow_server.url, tmp_path)
    else:
        with served(slow_server.url, tmp_path) as url:
            found = scripted(STREAM, url, tmp_path)
    (first, early), (second, late) = found
    assert (first, second) == (0, 1)
    assert late - early > 0.75


@contextmanager
def served(url: str, folder: Path) -> Iterator[str]:
    """The address of serve.mjs in front of a server."""
    process = subprocess.Popen(
        [*built("javascript/index.html", folder).told(url), "0"],
        cwd=EXAMPLES.parent,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.communicate(timeout=10)


def test_the_page_and_its_module_are_served_and_what_they_ask_is_forwarded(tmp_path: Path) -> None:
    with served(shared_server().url, tmp_path) as url:
        page = httpx.get(url)
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert page.text == (EXAMPLES / "javascript/index.html").read_text(encoding="utf-8")
        module = httpx.get(f"{url}/probmap.mjs")
        assert module.headers["content-type"] == "text/javascript; charset=utf-8"
        assert_demonstrated(built(DEMO, tmp_path).run(url))
        for path in ("/metrics", "/demo.mjs", "/../README.md", "/v2/repository/index"):
            assert httpx.get(url + path).status_code == 404


def test_the_page_is_told_that_the_server_is_gone(tmp_path: Path) -> None:
    with nobody() as gone, served(gone, tmp_path) as url:
        answer = httpx.post(f"{url}/v1/map", json={})
    assert answer.status_code == 502
    assert gone in answer.text


DOCUMENT = """
const made = () => ({ parts: [], append(...more) { this.parts.push(...more); },
  replaceChildren(...all) { this.parts = all; } });
const found = {};
globalThis.document = { querySelector: (name) => (found[name] ??= made()), createElement: made };
let changed;
globalThis.addEventListener = (event, then) => { if (event === "input") changed = then; };
Object.assign(document.querySelector("#logits"), { value: "0, 0.5, 1" });
Object.assign(document.querySelector("#alpha"), { value: "2" });
const real = globalThis.fetch;
globalThis.fetch = (path, options) => real(url + path, options);
const state = () => [
  found["#bars"].parts.map((bar) => [bar.parts[0].value, bar.parts[1].trim()]),
  found["[role=alert]"].textContent,
];
%s
await new Promise((resolve) => setTimeout(resolve, 1000));
const drawn = state();
found["#logits"].value = "0, x, 1";
await changed();
console.log(JSON.stringify([drawn, state()]));
"""


def test_the_page_draws_bars_and_tells_what_is_wrong(tmp_path: Path) -> None:
    page = (EXAMPLES / "javascript/index.html").read_text(encoding="utf-8")
    script = re.search(r'<script type="module">(.*?)</script>', page, re.S)
    assert script is not None
    code = re.sub(r"import .*\n", "", script[1])
    (bars, said), (none, wrong) = scripted(DOCUMENT % code, shared_server().url, tmp_path)
    assert bars == [[0, "0.0000"], [0.25, "0.2500"], [0.75, "0.7500"]]
    assert (said, none) == ("", [])
    assert "nan" in wrong


def test_the_page_draws_bars_in_a_browser(tmp_path: Path) -> None:
    with served(shared_server().url, tmp_path) as url:
        page = context(1280, "light").new_page()
        page.goto(url)
        page.get_by_label("Logits").fill("0, 0.5, 1")
        page.get_by_label("α").fill("2")
        expect(page.locator("#bars > div")).to_have_text([" 0.0000", " 0.2500", " 0.7500"])
        page.get_by_label("Logits").fill("0, x, 1")
        expect(page.get_by_role("alert")).to_contain_text("nan")
        page.close()
