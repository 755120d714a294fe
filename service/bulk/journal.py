"""Which files of a corpus are answered: a note in the folder of answers."""

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson

from service.bulk.corpus import CorpusFile

JOURNAL = ".probmap.jsonl"


class Journal:
    """Lines in FOLDER/.probmap.jsonl: what is asked of all files, then each that is answered.

    A run that was ended goes on with the files that have no line, and so does one of the same
    command over more files.
    """

    def __init__(self, folder: Path, run: dict[str, Any], *, restart: bool) -> None:
        """Opens the journal of a folder, which need not be there.

        Args:
            folder: of the answers.
            run: what is asked; only a run of the same goes on.
            restart: whether to forget what is there.

        Raises:
            ValueError: another run is at work there, or asked for something else.
            OSError: the folder cannot be made, or not be written to.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._file = (folder / JOURNAL).open("a+b", buffering=0)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._answered = {} if restart else self._read(run)
        except BlockingIOError:
            self._file.close()
            raise ValueError(f"another run is writing to {folder} at this moment") from None
        except BaseException:
            self._file.close()
            raise
        if not self._answered:
            self._file.truncate(0)
            self._write(run)

    def failed(self, file: CorpusFile) -> int | None:
        """The rows of a file that have no answer (a count); None: it is not answered yet."""
        note = self._answered.get(file.name)
        if note is None or note["input"] != [str(file.path), *file.state]:
            return None
        try:
            size = (self._folder / file.name).stat().st_size
        except FileNotFoundError:
            return None
        return int(note["failed"]) if size == note["size"] else None

    def add(self, file: CorpusFile, size: int, failed: int) -> None:
        """Notes that a file is answered.

        Args:
            file: which.
            size: of its answers (bytes).
            failed: the rows that have none (a count).

        Raises:
            OSError: it cannot be written.
        """
        source = [str(file.path), *file.state]
        note = {"file": file.name, "input": source, "size": size, "failed": failed}
        self._write(note)
        self._answered[file.name] = note

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def _read(self, run: dict[str, Any]) -> dict[str, dict[str, Any]]:
        self._file.seek(0)
        lines = self._file.read().splitlines(keepends=True)
        # A run that was killed may have left the beginning of a line.
        if lines and not lines[-1].endswith(b"\n"):
            self._file.truncate(sum(map(len, lines[:-1])))
            del lines[-1]
        if not lines:
            return {}
        first, *notes = map(orjson.loads, lines)
        if first != run:
            raise ValueError(
                f"{self._folder} holds answers of a run that asked for something else; name "
                "another folder, or forget them by --restart"
            )
        return {note["file"]: note for note in notes}

    def _write(self, note: dict[str, Any]) -> None:
        self._file.write(orjson.dumps(note) + b"\n")
        os.fsync(self._file.fileno())
