"""Files that Ray Data maps, each in an actor that holds a device, on whichever machine has one.

The unit of work is a file: its rows are read, answered and written where the device is, some
record batches at a time, so that logits do not go through Ray's object store and an actor needs as
little memory as `probmap map` on one file. A file whose actor dies is given to another one, which
goes on behind the last batches that are on the disk.
"""

import argparse
import logging
import os
import traceback
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import ray
import ray.data
from ray.data import ActorPoolStrategy, DataContext

from service.bulk.corpus import CorpusFile
from service.bulk.evaluator import Here
from service.bulk.map_file import Unfinished, map_file
from service.engine.devices import devices
from service.exit_codes import DONE, FAILED, INVALID_ROWS, told
from service.heap import keep_freed_memory
from service.map_run import file_source, identity_of, unlimited_settings

STORE_BYTES = 80 << 20
"""What Ray keeps for objects when it is started here; only names go through it (bytes)."""

TRIES = 4
"""How often a file is begun, by one actor after the other that dies over it (a count)."""

DIED = (
    f"the process that mapped it died {TRIES} times, as one does that takes more memory than its "
    "machine has; --batch-rows takes less at a time"
)


@dataclass(frozen=True, slots=True)
class FileOutcome:
    """What became of a file.

    Attributes:
        name: of its answers, below the folder.
        code: the exit code that a run on this file alone would have.
        message: why there are no answers; empty: there are.
        rows: of the answers (a count).
        failed: the rows that have none (a count).
        size: of the file of answers (bytes).
    """

    name: str
    code: int
    message: str
    rows: int = 0
    failed: int = 0
    size: int = 0


class Attempts:
    """An actor of Ray that counts how often each file was begun."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def begin(self, name: str) -> int:
        """Counts a file as begun once more; how often it was by now."""
        self._counts[name] += 1
        return self._counts[name]


class FileMapper:
    """An actor of Ray that holds a device, and maps one file after the other on it."""

    def __init__(self, given: argparse.Namespace, folder: str, attempts: Any) -> None:
        keep_freed_memory()
        self._given = given
        self._folder = Path(folder)
        self._attempts = attempts
        self._device = devices(given.device)[0]

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Maps the file that a row of the dataset names."""
        name = row["name"]
        # Ray gives a file to another actor for ever.
        if ray.get(self._attempts.begin.remote(name)) > TRIES:
            return asdict(FileOutcome(name, FAILED, DIED))
        try:
            outcome = self._mapped(name, row["path"])
        except Exception as error:  # noqa: BLE001 a file loses only itself
            cause = error.reason if isinstance(error, Unfinished) else error
            trace = "".join(traceback.format_exception(cause))
            outcome = FileOutcome(name, *(told(cause) or (FAILED, trace)))
        return asdict(outcome)

    def _mapped(self, name: str, path: str) -> FileOutcome:
        output = self._folder / name
        asked = of_one_file(self._given, path, str(output))
        settings = unlimited_settings()
        source = file_source(asked, settings, is_table=True)
        output.parent.mkdir(parents=True, exist_ok=True)
        run, restart = identity_of(asked), self._given.restart
        failed = map_file(source, Here(self._device), output, run, settings, restart=restart)
        rows, size = pq.read_metadata(output).num_rows, output.stat().st_size
        return FileOutcome(name, INVALID_ROWS if failed else DONE, "", rows, failed, size)


def of_one_file(given: argparse.Namespace, path: str, output: str) -> argparse.Namespace:
    """The arguments of a run on one file alone."""
    changed = {"logits": [], "input": path, "output": output}
    return argparse.Namespace(**{**vars(given), **changed})


def outcomes(
    given: argparse.Namespace, files: list[CorpusFile], folder: Path
) -> Generator[FileOutcome]:
    """Maps files; what became of each, as it comes, and nothing of what Ray lost.

    Args:
        given: the arguments of the command line.
        files: of logits, each of which every machine sees under the same path.
        folder: of the answers, which every machine sees as well.

    Raises:
        ValueError: no machine has the device.
        ConnectionError: there is no cluster where RAY_ADDRESS says.
    """
    with _cluster():
        has_gpu = "GPU" in ray.cluster_resources()
        if given.device.startswith("cuda") and not has_gpu:
            raise ValueError(f"--device {given.device}: Ray finds no machine with a GPU")
        resource = "GPU" if has_gpu and given.device != "cpu" else "CPU"
        free = int(ray.available_resources().get(resource, 1))
        pool = ActorPoolStrategy(
            min_size=1, max_size=len(files), initial_size=min(len(files), max(1, free))
        )
        counter = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(Attempts)
        attempts = counter.remote()
        rows = [{"name": file.name, "path": str(file.path)} for file in files]
        mapped = ray.data.from_items(rows, override_num_blocks=len(rows)).map(
            FileMapper,  # type: ignore[arg-type] # it takes classes, but has no type for them
            fn_constructor_args=(given, str(folder.absolute()), attempts),
            compute=pool,
            num_cpus=1,
            num_gpus=int(resource == "GPU"),
        )
        for row in mapped.iter_rows():
            yield FileOutcome(**row)


@contextmanager
def _cluster() -> Iterator[None]:
    """Ray as RAY_ADDRESS names it, or one that is started here and ends with the run."""
    address = os.environ.get("RAY_ADDRESS")
    # Nobody is told that this runs, and the terminal is for what became of files.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    own: dict[str, Any] = {"object_store_memory": STORE_BYTES, "include_dashboard": False}
    ray.init(address or "local", **quiet, **({} if address else own))
    try:
        context = DataContext.get_current()
        context.enable_progress_bars = False
        context.print_on_execution_start = False
        # What Ray loses of one file ends no other.
        context.max_errored_blocks = -1
        yield
    finally:
        ray.shutdown()
