"""Log lines: readable by people, or JSON by machines."""

import logging
import sys

import orjson

from service.settings import Settings


class JsonFormatter(logging.Formatter):
    """Writes a record, and the fields that came with it, as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """One line of JSON."""
        line = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


def configure(settings: Settings) -> None:
    """Sends every log line of the process to the standard error stream."""
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    handler.setFormatter(JsonFormatter() if settings.log_format == "json" else text)
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)
    # Each says what one of ours says already.
    for name in ("uvicorn", "uvicorn.error", "asyncio"):
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
