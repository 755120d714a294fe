"""What the exit codes of the command line mean, and which an error has."""

import sys

from mappings.errors import InvalidRow, ProbmapError
from service.errors import STATUS

DONE = 0
FAILED = 1
USAGE_ERROR = 2
INVALID_ROWS = 3
INTERRUPTED = 130

MEANINGS = {
    DONE: "all rows are answered",
    FAILED: "a file cannot be read or written, the disk is full, the server cannot be reached or "
    "does not answer",
    USAGE_ERROR: "what was asked for cannot be",
    INVALID_ROWS: "rows, or lines, have no answer; with --invalid-rows report, and of lines, the "
    "others are written",
    INTERRUPTED: "interrupted",
}
"""The exit codes of `probmap map`."""


def told(error: BaseException) -> tuple[int, str] | None:
    """The exit code of an error and what to say of it; None: it is a fault of our own."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED, "interrupted"
    if isinstance(error, InvalidRow):
        return INVALID_ROWS, error.detail
    if isinstance(error, ProbmapError):
        status = STATUS.get(error.code, 500)
        return (FAILED if status >= 500 or status == 429 else USAGE_ERROR), error.detail
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return FAILED, f"{where}{error.strerror or error}"
    if isinstance(error, ValueError):
        return USAGE_ERROR, str(error)
    # Only who asks a server has loaded the client, which takes a while.
    client = sys.modules.get("probmap_client")
    if client is not None and isinstance(error, client.ProbmapError):
        return FAILED, error.detail
    return None
