"""`probmap map --engine ray`: many files to a folder, on all devices of a cluster."""

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from service.bulk.corpus import CorpusFile, corpus_files
from service.bulk.journal import Journal
from service.bulk.progress import progress
from service.bulk.ray_files import FileOutcome, of_one_file, outcomes
from service.exit_codes import DONE, FAILED, INTERRUPTED, INVALID_ROWS
from service.map_run import identity_of

DEVICES = ("auto", "cpu", "cuda")
"""What an actor can be told to hold; Ray chooses which of several GPUs."""

LOST = "Ray lost it, and has the reason in its logs; give the same command again"


def run(given: argparse.Namespace) -> int:
    """Runs the command.

    Returns:
        The exit code: the lowest of its files that is not 0.

    Raises:
        ValueError: the arguments make no sense.
        OSError: the folder cannot be written, or the cluster not be reached.
    """
    for flag in ("input", "output", "plot", "url"):
        if getattr(given, flag) is not None:
            raise ValueError(f"--{flag} is not for --engine ray, which takes files and a folder")
    if given.device not in DEVICES:
        raise ValueError(f"--device should be {', '.join(DEVICES)}: Ray chooses among several GPUs")
    if len(given.logits) < 2:
        raise ValueError("--engine ray takes patterns of files, and a folder for their answers")
    *patterns, named = given.logits
    folder = Path(named)
    files = corpus_files(patterns)
    for file in files:
        if (folder / file.name).absolute() == file.path:
            raise ValueError(
                f"{file.path} would be overwritten by its answers; name another folder"
            )
    # What is asked, whichever files there are.
    asked = identity_of(of_one_file(given, "", ""))
    with Journal(folder, asked, restart=given.restart) as journal:
        return _map(given, files, folder, journal)


def _map(given: argparse.Namespace, files: list[CorpusFile], folder: Path, journal: Journal) -> int:
    kept = {file.name: failed for file in files if (failed := journal.failed(file)) is not None}
    left = {file.name: file for file in files if file.name not in kept}
    codes = [INVALID_ROWS for failed in kept.values() if failed]
    without: dict[str, list[str]] = {}
    try:
        for outcome in _outcomes(given, [*left.values()], folder):
            file = left.pop(outcome.name)
            codes.append(outcome.code)
            if outcome.message:
                without.setdefault(outcome.message, []).append(str(file.path))
            else:
                journal.add(file, outcome.size, outcome.failed)
    except KeyboardInterrupt:
        done = f"{len(files) - len(left):,} of {len(files):,} files are done"
        sys.stderr.write(
            f"probmap map: interrupted; {done}; give the same command again to go on\n"
        )
        return INTERRUPTED
    if left:
        without[LOST] = [str(file.path) for file in left.values()]
        codes.append(FAILED)
    for message, paths in without.items():
        more = f" and {len(paths) - 1:,} more" if len(paths) > 1 else ""
        sys.stderr.write(f"probmap map: {paths[0]}{more}: {message}\n")
    return min((code for code in codes if code), default=DONE)


def _outcomes(
    given: argparse.Namespace, files: list[CorpusFile], folder: Path
) -> Iterator[FileOutcome]:
    """What becomes of files, as it comes, and on a terminal how far they are by their sizes."""
    if not files:
        return
    sizes = {file.name: file.size for file in files}
    started, rows, done = time.monotonic(), 0, 0
    with progress(folder.name) as show, closing(outcomes(given, files, folder)) as found:
        for outcome in found:
            rows += outcome.rows
            done += sizes[outcome.name]
            seconds = max(1e-9, time.monotonic() - started)
            show(rows, rows / seconds, done / max(1, sum(sizes.values())))
            yield outcome
