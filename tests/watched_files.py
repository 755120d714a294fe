"""Runs `probmap` with a hook that prints every file that Python writes, makes or moves."""

import os
import sys
from typing import Any

WRITES = "WRITES"
"""What such a line begins with."""

WAYS_TO_WRITE = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC

OTHER_EVENTS = frozenset(
    {"os.mkdir", "os.rename", "os.link", "os.symlink", "os.truncate", "tempfile.mkstemp"}
)


def watch(event: str, details: tuple[Any, ...]) -> None:
    """Prints what writes to a named file; see `sys.addaudithook`."""
    if event == "open":
        path, _, flags = details
        if isinstance(path, int) or not flags & WAYS_TO_WRITE or os.fspath(path) == os.devnull:
            return
    elif event not in OTHER_EVENTS:
        return
    sys.stderr.write(f"{WRITES} {event} {details}\n")


if __name__ == "__main__":
    sys.addaudithook(watch)
    from service.command import main

    sys.exit(main())
