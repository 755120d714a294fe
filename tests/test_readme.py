"""What README.md says is so: tables, commands, requests and answers."""

import contextlib
import io
import json
import re
import shlex
from inspect import signature
from pathlib import Path
from typing import Any, get_args

import pytest

import probmap_client
from answers import OUTPUTS
from mappings.jacobian import Form
from mappings.losses import Kind
from mappings.registry import MAPPINGS, PROCESSORS
from readme_table import rendered
from schemas.request import MAX_PROCESSORS
from server import map_logits, shared_client, shared_server
from service.cli import main

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"(?:<!-- (\S+?)(?:: (\d+))? -->\n)?```(\w+)\n(.*?)```", re.S)
BLOCKS = [match.groups() for match in BLOCK.finditer(README)]

REQUESTS = [
    text for mark, _, kind, text in BLOCKS if kind == "json" and '"logits"' in text and not mark
]
CURLS = [
    (text, BLOCKS[place + 1][3])
    for place, (_, _, kind, text) in enumerate(BLOCKS)
    if kind == "sh" and text.startswith("curl ")
]
PATHS = [command.split()[1].removeprefix("http://127.0.0.1:8000") for command, _ in CURLS]
PAIRS = [
    (int(status or 200), text, BLOCKS[place + 1][3])
    for place, (mark, status, _, text) in enumerate(BLOCKS)
    if mark == "pair"
]


def marked(name: str) -> tuple[str, str]:
    """The block marked so, and the one after it."""
    place = next(place for place, block in enumerate(BLOCKS) if block[0] == name)
    return BLOCKS[place][3], BLOCKS[place + 1][3]


def assert_like(got: Any, wanted: Any, at: str = "the answer") -> None:
    """Equal, numbers to 15 digits; a text that ends in … only begins so."""
    if isinstance(wanted, dict):
        assert list(got) == list(wanted), at
        for key in wanted:
            if key != "request_id":
                assert_like(got[key], wanted[key], f"{at}.{key}")
    elif isinstance(wanted, list):
        assert len(got) == len(wanted), at
        for place, value in enumerate(wanted):
            assert_like(got[place], value, f"{at}[{place}]")
    elif isinstance(wanted, float):
        assert got == pytest.approx(wanted, rel=1e-14, abs=1e-15), at
    else:
        assert got == wanted, at


def test_the_generated_tables_are_up_to_date() -> None:
    assert rendered(README) == README, "run `make readme`"


def test_everything_there_is_to_choose_is_in_the_readme() -> None:
    for name in (*MAPPINGS, *PROCESSORS, *OUTPUTS):
        assert f"`{name}`" in README
    for choice in (*get_args(Form), *get_args(Kind)):
        assert f'"{choice}"' in README
    assert f"{len(MAPPINGS)} mappings" in README
    assert f"{len(PROCESSORS)} logits processors" in README
    assert f"up to {MAX_PROCESSORS} processors" in README


@pytest.mark.parametrize(("command", "printed"), CURLS, ids=PATHS)
def test_every_curl_command_is_answered_as_printed(command: str, printed: str) -> None:
    words = shlex.split(command)
    assert [words[0], words[2], words[4]] == ["curl", "-H", "-d"]
    path = words[1].removeprefix("http://127.0.0.1:8000")
    name, _, value = words[3].partition(": ")
    response = shared_client().post(path, content=words[5].encode(), headers={name: value})
    assert response.status_code == 200, response.text
    # A stream answers several lines, all others one.
    assert_like(
        [*map(json.loads, response.text.splitlines())], [*map(json.loads, printed.splitlines())]
    )
    assert " " not in printed.strip()


def test_the_command_line_prints_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    command, printed = marked("table")
    assert main(shlex.split(command)[1:]) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.strip().splitlines()]
    assert lines == printed.strip().splitlines()


def test_the_client_prints_what_is_printed() -> None:
    code, printed = marked("client")
    assert "http://127.0.0.1:8000" in code
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(code.replace("http://127.0.0.1:8000", shared_server().url), {})
    assert output.getvalue() == printed


def test_everything_named_of_the_client_exists() -> None:
    section = README.partition("## From Python\n")[2].partition("\n## ")[0]
    named = re.findall(r"`(\w+)\b", re.sub(r"```.*?```", "", section, flags=re.S))
    there_is = {*dir(probmap_client), *dir(probmap_client.Client), *dir(probmap_client.MapResult)}
    there_is |= {*signature(probmap_client.Client).parameters}
    there_is |= {*signature(probmap_client.Client.stream).parameters}
    there_is |= {*dir(probmap_client.Refused(" ", code=" ", status=0))}
    elsewhere = {"probmap_client", "server", "pip", "None", "await", "async", "result"}
    assert set(named) - elsewhere <= there_is


@pytest.mark.parametrize("text", REQUESTS)
def test_every_request_is_answered(text: str) -> None:
    response = map_logits(json.loads(text))
    assert response.status_code == 200, response.text


@pytest.mark.parametrize(("status", "asked", "printed"), PAIRS)
def test_every_answer_is_as_printed(status: int, asked: str, printed: str) -> None:
    response = map_logits(json.loads(asked))
    assert response.status_code == status
    assert_like(response.json(), json.loads(printed))


def test_there_are_requests_and_answers_to_check() -> None:
    assert len(REQUESTS) >= 3
    assert len(PAIRS) >= 5
    assert PATHS == ["/v1/map", "/v1/sample", "/v1/loss", "/v1/stream"]
    assert README.count("curl ") == len(CURLS)


def test_every_make_target_named_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.M))
    assert set(re.findall(r"make ([a-z]+)\b", README)) - {"is"} <= targets
    for target in ("setup", "serve", "test", "check", "bench", "help"):
        assert target in targets


def test_every_file_and_folder_named_exists() -> None:
    for name in re.findall(r"`((?:mappings|schemas|service|tests)[/\w.]*)`", README):
        assert (ROOT / name).exists(), name
