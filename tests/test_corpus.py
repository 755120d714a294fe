"""Which files a pattern means, what their answers are called, and which are answered already."""

import os
from pathlib import Path

import pytest

from service.bulk.corpus import CorpusFile, corpus_files
from service.bulk.journal import JOURNAL, Journal

RUN = {"asked": "softmax"}


def written(folder: Path, *names: str) -> None:
    for length, name in enumerate(names, 1):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(bytes(length))


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("a/*.parquet", ["y.parquet", "x.parquet"]),
        ("a/x.parquet", ["x.parquet"]),
        ("*/x.parquet", ["b/x.parquet", "a/x.parquet"]),
        ("**/*.arrow", ["b/c/z.parquet"]),
        ("b/*/z.arrow", ["c/z.parquet"]),
        ("a/[xw].parquet", ["x.parquet"]),
        ("odd[1].npy", ["odd[1].parquet"]),
    ],
)
def test_folders_below_the_first_wildcard_stay_and_the_largest_is_first(
    pattern: str, names: list[str], tmp_path: Path
) -> None:
    written(tmp_path, "a/x.parquet", "a/y.parquet", "b/x.parquet", "b/c/z.arrow", "odd[1].npy")
    assert [file.name for file in corpus_files([f"{tmp_path}/{pattern}"])] == names


def test_a_relative_pattern_means_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, "a/x.parquet")
    monkeypatch.chdir(tmp_path)
    (file,) = corpus_files(["a/*"])
    assert (file.name, file.path, file.size) == ("x.parquet", tmp_path / "a/x.parquet", 1)
    assert [one.name for one in corpus_files(["*/*", "a/x.parquet"])] == ["a/x.parquet"]


@pytest.mark.parametrize(
    ("patterns", "said"),
    [
        (["none/*"], "matches no file"),
        (["a/z.parquet"], "matches no file"),
        (["a/notes.txt"], r"notes\.txt should end in"),
        (["a/x.parquet", "b/x.parquet"], "would both be"),
        (["a/x.*"], "would both be"),
    ],
)
def test_what_cannot_be_mapped_is_refused(patterns: list[str], said: str, tmp_path: Path) -> None:
    written(tmp_path, "a/x.parquet", "a/notes.txt", "b/x.parquet", "a/x.arrow")
    with pytest.raises(ValueError, match=said):
        corpus_files([f"{tmp_path}/{pattern}" for pattern in patterns])


def answered(folder: Path) -> CorpusFile:
    """A file, of which a journal says that it is answered."""
    written(folder, "in/x.parquet", "out/x.parquet")
    (file,) = corpus_files([f"{folder}/in/*"])
    with Journal(folder / "out", RUN, restart=False) as journal:
        assert journal.failed(file) is None
        journal.add(file, 2, 7)
        assert journal.failed(file) == 7
    return file


def test_a_journal_knows_what_is_answered(tmp_path: Path) -> None:
    file = answered(tmp_path)
    with Journal(tmp_path / "out", RUN, restart=False) as journal:
        assert journal.failed(file) == 7
    # A killed run may have left the beginning of a line.
    with (tmp_path / "out" / JOURNAL).open("ab") as notes:
        notes.write(b'{"file":"y')
    with Journal(tmp_path / "out", RUN, restart=False) as journal:
        assert journal.failed(file) == 7
        journal.add(CorpusFile("z.parquet", file.path, file.state), 1, 0)
    with Journal(tmp_path / "out", RUN, restart=False) as journal:
        assert journal.failed(file) == 7
    with Journal(tmp_path / "out", RUN, restart=True) as journal:
        assert journal.failed(file) is None


def test_what_changed_is_not_answered(tmp_path: Path) -> None:
    file = answered(tmp_path)
    output = tmp_path / "out" / "x.parquet"
    with Journal(tmp_path / "out", RUN, restart=False) as journal:
        os.utime(file.path, (1, 1))
        (touched,) = corpus_files([str(file.path)])
        assert journal.failed(touched) is None
        assert journal.failed(file) == 7
        output.write_bytes(b"cut")
        assert journal.failed(file) is None
        output.unlink()
        assert journal.failed(file) is None


def test_only_the_same_run_goes_on_and_one_at_a_time(tmp_path: Path) -> None:
    file = answered(tmp_path)
    other = {"asked": "entmax"}
    with pytest.raises(ValueError, match="--restart"):
        Journal(tmp_path / "out", other, restart=False)
    with Journal(tmp_path / "out", RUN, restart=False) as journal:
        with pytest.raises(ValueError, match="another run"):
            Journal(tmp_path / "out", RUN, restart=True)
        assert journal.failed(file) == 7
    with Journal(tmp_path / "out", other, restart=True) as journal:
        assert journal.failed(file) is None
