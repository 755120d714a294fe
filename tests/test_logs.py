"""Log lines, whatever is in them: one record is one line, in text and in JSON."""

import json
import logging
import sys
from datetime import UTC, datetime

import pytest

from service.logs import JsonFormatter, TextFormatter

CONTROLS = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)]
each_formatter = pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])


def record(message: str, error: ValueError | None = None) -> logging.LogRecord:
    """A record of a message, and of an error that was raised."""
    told = None
    if error is not None:
        try:
            raise error
        except ValueError:
            told = sys.exc_info()
    return logging.LogRecord("probmap.test", logging.INFO, __file__, 1, message, (), told)


@each_formatter
def test_no_control_character_gets_into_a_line(formatter: logging.Formatter) -> None:
    for control in CONTROLS:
        line = formatter.format(record(f"before{control}after"))
        assert control not in line
        assert "before" in line
        assert "after" in line
        assert len(line.splitlines()) == 1


def test_a_traceback_cannot_pass_for_a_record() -> None:
    forged = "2026-01-01 00:00:00,000 INFO    probmap.request: FORGED"
    error = ValueError(f"a\n{forged}\r{forged}\x1b[31m\u2028{forged}")
    lines = TextFormatter().format(record("failed", error)).splitlines()
    assert lines[0].endswith("INFO    probmap.test: failed")
    assert lines[1].strip() == "Traceback (most recent call last):"
    assert all(line.startswith("    ") for line in lines[1:])
    assert "\x1b" not in "".join(lines)


def test_a_record_with_a_traceback_is_one_line_of_json() -> None:
    line = JsonFormatter().format(record("failed", ValueError("a\nb\ud800")))
    assert len(line.splitlines()) == 1
    told = json.loads(line)
    assert told["exception"].endswith("ValueError: a\nb\ud800")
    assert (told["message"], told["level"], told["logger"]) == ("failed", "info", "probmap.test")


def test_fields_stand_beside_the_message_and_the_time_is_that_of_utc() -> None:
    made = record("done")
    made.created = 1_700_000_000.25
    made.fields = {"rows": 2, "route": "/v1/map"}
    told = json.loads(JsonFormatter().format(made))
    assert (told["rows"], told["route"]) == (2, "/v1/map")
    # 1.7 billion seconds after 1970.
    moment = datetime(2023, 11, 14, 22, 13, 20, 250_000, tzinfo=UTC)
    assert datetime.fromisoformat(told["time"]) == moment
    assert told["time"] == "2023-11-14T22:13:20.250+00:00"
