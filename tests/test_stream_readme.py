"""What README.md shows of streams is so."""

import contextlib
import io
import re

import pytest

from server import shared_server
from service.settings import Settings
from test_readme import README, marked

SECTION = README.partition("## Streams\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("name", ["arrow", "websocket"])
def test_an_example_prints_what_is_printed(name: str) -> None:
    code, printed = marked(name)
    assert "127.0.0.1:8000" in code
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(code.replace("127.0.0.1:8000", f"127.0.0.1:{shared_server().port}"), {})
    assert output.getvalue() == printed


def test_flags_are_those_there_are() -> None:
    flags = {name.replace("_", "-") for name in Settings.model_fields}
    named = set(re.findall(r"`--([a-z-]+)", SECTION))
    assert named
    assert named <= flags
