"""The work of a run that may be interrupted: what is done lies beside the output until all is."""

import fcntl
import os
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson

SAVE_SECONDS = 1.0
"""How often it is noted what is done (seconds): an interrupted run loses no more than that."""

STATE = "state.json"
LOCK = "lock"


class Spool:
    """Files that grow in a folder, OUTPUT.partial, and a note of how far they are good.

    Whenever a run ends, also by being killed, the next one of the same command cuts the files to
    what the note says, and goes on from there.

    Attributes:
        done: the pieces that were written (a count).
        rows: the rows in them (a count).
        failed: those of the rows, or of the lines, that have no answer (a count).
        notes: what the writer has to know when it goes on.
    """

    def __init__(self, output: Path, run: dict[str, Any], *, restart: bool) -> None:
        """Opens the folder, with what an interrupted run left there.

        Args:
            output: what will be written.
            run: what is to be done; only a run of the same goes on.
            restart: whether to forget what is there.

        Raises:
            ValueError: another run is at work there, or left something unfinished.
            OSError: the folder cannot be made.
        """
        self._output = output
        self.folder = output.with_name(f"{output.name}.partial")
        self._run = run
        self._files: dict[str, FileIO] = {}
        self._is_over = False
        self.folder.mkdir(exist_ok=True)
        self._lock = (self.folder / LOCK).open("wb")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise ValueError(f"another run is writing {output} at this moment") from None
        try:
            state = None if restart else self._read()
        except ValueError:
            self._lock.close()
            raise
        kept = state or {"done": 0, "rows": 0, "failed": 0, "sizes": {}, "notes": {}}
        self.done: int = kept["done"]
        self.rows: int = kept["rows"]
        self.failed: int = kept["failed"]
        self.notes: dict[str, Any] = kept["notes"]
        self._sizes: dict[str, int] = kept["sizes"]
        self._cut()
        self._written: dict[str, int] = dict(self._sizes)
        self._saved = time.monotonic()

    def append(self, name: str, parts: Iterable[bytes | memoryview]) -> None:
        """Adds bytes to a file."""
        if name not in self._files:
            # Without a buffer nothing is left to be written when a write has failed.
            self._files[name] = FileIO(self.folder / name, "ab")
        for part in parts:
            left = memoryview(part).cast("B")
            while left:
                left = left[self._files[name].write(left) :]
            self._written[name] = self._written.get(name, 0) + memoryview(part).nbytes

    def size(self, name: str) -> int:
        """How long a file is by now (bytes)."""
        return self._written.get(name, 0)

    def commit(self, rows: int, failed: int) -> None:
        """Counts a piece as done, all of which was appended."""
        self.done += 1
        self.rows += rows
        self.failed += failed
        self._sizes = dict(self._written)
        if time.monotonic() - self._saved >= SAVE_SECONDS:
            self.save()

    def save(self) -> None:
        """Notes what is done, once that is on the disk."""
        for file in self._files.values():
            os.fsync(file.fileno())
        state = {
            "run": self._run,
            "done": self.done,
            "rows": self.rows,
            "failed": self.failed,
            "sizes": self._sizes,
            "notes": self.notes,
        }
        new = self.folder / f"{STATE}.new"
        with new.open("wb") as note:
            note.write(orjson.dumps(state))
            note.flush()
            os.fsync(note.fileno())
        new.replace(self.folder / STATE)
        self._saved = time.monotonic()

    def close_files(self) -> None:
        """Ends the growth of the files."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def finish(self, whole: Path) -> None:
        """Gives a file of the folder its final name, at once, and removes the rest."""
        with whole.open("rb") as file:
            os.fsync(file.fileno())
        whole.replace(self._output)
        self.discard()

    def discard(self) -> None:
        """Removes everything but the output."""
        self._is_over = True
        self.close_files()
        shutil.rmtree(self.folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if not self._is_over:
                if not self.done:
                    self.discard()
                elif isinstance(error, OSError):
                    # The disk may be full: what was noted last still holds.
                    with suppress(OSError):
                        self.save()
                else:
                    self.save()
        finally:
            self.close_files()
            self._lock.close()

    def _read(self) -> dict[str, Any] | None:
        """What was noted, when it is of this run and the files are there."""
        try:
            state: dict[str, Any] = orjson.loads((self.folder / STATE).read_bytes())
        except FileNotFoundError:
            return None
        if state["run"] != self._run:
            raise ValueError(
                f"{self.folder} is what an interrupted run left, which asked for something else "
                "or read another input; finish it by its own command, or forget it by --restart"
            )
        for name, size in state["sizes"].items():
            path = self.folder / name
            if not path.exists() or path.stat().st_size < size:
                return None
        return state

    def _cut(self) -> None:
        """Removes what was written after the note."""
        for path in self.folder.iterdir():
            if path.name in self._sizes:
                os.truncate(path, self._sizes[path.name])
            elif path.name != LOCK and not (path.name == STATE and self.done):
                path.unlink()
