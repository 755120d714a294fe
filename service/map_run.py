"""What a run of `probmap map` over a file is: what it reads, asks, and is told from others by."""

import argparse
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from service.bulk.corpus import state_of
from service.bulk.formats import INPUTS, LINES, source_of
from service.bulk.piece import Source
from service.map_arguments import options_of
from service.settings import Settings
from service.version import release
from service.wire.field_places import Fields

TABLE_OUTPUTS = ["probabilities", "log_probabilities", "normalizer", "entropy", "support_size"]
"""What a table shows."""

APART = ("command", "engine", "output", "restart", "plot", "url", "input")
"""Arguments that do not change an answer."""

UNLIMITED = 1 << 62


def unlimited_settings() -> Settings:
    """Settings without limits: here nobody is to be protected from anybody."""
    return Settings(
        max_rows=UNLIMITED,
        max_classes=UNLIMITED,
        max_elements=UNLIMITED,
        max_output_elements=UNLIMITED,
    )


def merging(given: argparse.Namespace, settings: Settings) -> Callable[[Fields], Fields]:
    """Makes of the fields that an input has what is asked: flags win over them."""
    options = options_of(given, settings)
    defaults: Fields = {"mapping": "softmax"}
    if given.output is None:
        defaults["outputs"] = TABLE_OUTPUTS
    return lambda document: {**defaults, **document, **options}


def file_source(given: argparse.Namespace, settings: Settings, *, is_table: bool) -> Source:
    """The input in a file that is read some rows at a time.

    Raises:
        ProbmapError: what is asked cannot be.
        ValueError: the file is not what its suffix says, or needs a package that is not there.
        OSError: it cannot be read.
    """
    path = Path(given.input)
    if path.suffix not in INPUTS:
        raise ValueError(f"--input should end in {', '.join(INPUTS)} or .json")
    chosen = given.columns
    if chosen is not None and path.suffix in (".npy", LINES):
        raise ValueError(f"--columns is for files that have columns; {path.suffix} has none")
    names = None if chosen is None else [name.strip() for name in chosen.split(",") if name.strip()]
    merged = merging(given, settings)
    return source_of(path, merged, names, settings, batch_rows=given.batch_rows, is_table=is_table)


def identity_of(given: argparse.Namespace) -> dict[str, Any]:
    """What tells a run from others: only the same run may go on where one was interrupted."""
    flags = {name: value for name, value in vars(given).items() if name not in APART}
    text = orjson.dumps(flags, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_SORT_KEYS)
    identity: dict[str, Any] = {
        "probmap": release(),
        "asked": hashlib.sha256(text).hexdigest(),
        "by": "a server" if given.url else "this process",
    }
    if given.input:
        identity["input"] = state_of(Path(given.input))
    return identity
