"""Which version this is: said once, in pyproject.toml, and shown wherever it is asked for."""

import re
import tomllib
from pathlib import Path

import httpx
import pytest

from server import ROOT, shared_server
from service.cli import main

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VERSION = str(PROJECT["version"])

SOURCES = [
    path
    for folder in ("mappings", "schemas", "service", "probmap_client")
    for path in sorted((ROOT / folder).rglob("*.py"))
]


def test_the_command_line_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ending:
        main(["--version"])
    assert ending.value.code == 0
    assert capsys.readouterr().out == f"probmap {VERSION}\n"


def test_the_server_shows_it() -> None:
    url = shared_server().url
    assert httpx.get(f"{url}/v2").json()["version"] == VERSION
    assert httpx.get(f"{url}/openapi.json").json()["info"]["version"] == VERSION
    metrics = httpx.get(f"{url}/metrics").text
    assert re.search(
        rf'^probmap_build_info\{{.*version="{re.escape(VERSION)}".*\}} 1.0$', metrics, re.M
    )


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_source_says_it_again(path: Path) -> None:
    assert VERSION not in path.read_text(encoding="utf-8")


def test_the_changelog_has_it_or_what_comes_after_it() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)
    assert headings[0] == "Unreleased" or headings[0].startswith(VERSION)


def test_the_license_is_that_of_the_package() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert PROJECT["license"] == "Apache-2.0"
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
