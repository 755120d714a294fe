"""The files of a corpus: which there are, and what each is called in the folder of answers."""

import glob
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.bulk.formats import INPUTS

ANSWER_SUFFIX = ".parquet"


@dataclass(frozen=True, slots=True)
class CorpusFile:
    """A file of logits.

    Attributes:
        name: of its answers, below the folder.
        path: where it lies.
        state: what changes when its contents do.
    """

    name: str
    path: Path
    state: list[Any]

    @property
    def size(self) -> int:
        """How long it is (bytes)."""
        return int(self.state[1])


def corpus_files(patterns: Sequence[str]) -> list[CorpusFile]:
    """The files that patterns match, the largest first, so that none is left alone at the end.

    What lies in folders below the first `*`, `?` or `[` of a pattern keeps them in its name; of two
    patterns that match a file, the first names it.

    Args:
        patterns: paths, or patterns of them; `**` is any number of folders.

    Raises:
        ValueError: a pattern matches nothing, two files would have the same answers, or one is of
            no format that is read some rows at a time.
        OSError: a file cannot be looked at.
    """
    found: dict[str, CorpusFile] = {}
    seen: set[Path] = set()
    for pattern in patterns:
        paths = [path for path in map(Path, _matches(pattern)) if not path.is_dir()]
        if not paths:
            raise ValueError(f"{pattern} matches no file")
        root = _fixed(pattern)
        for path in paths:
            if path.suffix not in INPUTS:
                raise ValueError(f"{path} should end in {', '.join(INPUTS)}")
            name = str(path.relative_to(root).with_suffix(ANSWER_SUFFIX))
            path = path.absolute()
            if path in seen:
                continue
            seen.add(path)
            other = found.setdefault(name, CorpusFile(name, path, state_of(path)))
            if other.path != path:
                raise ValueError(f"the answers to {other.path} and {path} would both be {name}")
    return sorted(found.values(), key=lambda file: (-file.size, file.name))


def state_of(path: Path) -> list[Any]:
    """What changes when a file does.

    Raises:
        OSError: it cannot be looked at.
    """
    state = path.stat()
    return [path.suffix, state.st_size, state.st_mtime_ns]


def _matches(pattern: str) -> list[str]:
    # A file may be called what looks like a pattern.
    return [pattern] if Path(pattern).exists() else sorted(glob.glob(pattern, recursive=True))


def _fixed(pattern: str) -> Path:
    """The folder that holds all that a pattern can match."""
    parts = Path(pattern).parts
    if Path(pattern).exists():
        return Path(*parts[:-1])
    wild = next(place for place, part in enumerate(parts) if glob.has_magic(part))
    return Path(*parts[: min(wild, len(parts) - 1)])
