"""Log lines: readable by people, or JSON by machines; a record is a line, whatever it holds."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from service.settings import Settings

CONTROLS = (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)
"""Characters that end a line somewhere, or that a terminal obeys."""

ESCAPES = {code: ascii(chr(code))[1:-1] for code in CONTROLS}
"""How each is written instead."""

INDENT = "    "


class TextFormatter(logging.Formatter):
    """Writes a record as one line, and the traceback that came with it indented below."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 logging's name
        """The line."""
        return super().formatMessage(record).translate(ESCAPES)

    def formatException(self, ei: Any) -> str:  # noqa: N802 logging's name
        """The traceback, of which no line can be taken for a record."""
        lines = super().formatException(ei).split("\n")
        return "\n".join(INDENT + line.translate(ESCAPES) for line in lines)


class JsonFormatter(logging.Formatter):
    """Writes a record, and the fields that came with it, as one line of JSON in ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        """One line of JSON; the time is UTC's."""
        moment = datetime.fromtimestamp(record.created, UTC)
        line = {
            "time": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str).replace("\x7f", "\\u007f")


def configure(settings: Settings) -> None:
    """Sends every log line of the process to the standard error stream."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if settings.log_format == "json" else TextFormatter())
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)
    # Each says what one of ours says already.
    for name in ("uvicorn", "uvicorn.error", "asyncio"):
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
