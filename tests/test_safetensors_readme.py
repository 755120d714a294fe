"""What README.md shows of safetensors is so."""

import contextlib
import io
import re

from server import shared_server
from service.settings import Settings
from service.wire.safetensors_header import MAX_HEADER_BYTES
from test_readme import README, marked

SECTION = README.partition("## Tensors without text\n")[2].partition("\n## ")[0]


def test_the_example_prints_what_is_printed() -> None:
    code, printed = marked("safetensors")
    assert "http://127.0.0.1:8000" in code
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(code.replace("http://127.0.0.1:8000", shared_server().url), {})
    assert output.getvalue() == printed


def test_flags_and_limits_are_those_there_are() -> None:
    flags = {name.replace("_", "-") for name in Settings.model_fields}
    assert set(re.findall(r"`--([a-z-]+)", SECTION)) <= flags
    assert MAX_HEADER_BYTES == 1 << 20
    assert "1 MiB" in SECTION
