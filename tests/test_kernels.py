"""The kernels for GPUs hold in Triton's interpreter, and compile; each in a process of its own."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


FILES = [
    ("tests/interpreted_kernels.py", "1"),
    ("tests/interpreted_cuts.py", "1"),
    ("tests/compiled_kernels.py", "0"),
]


@pytest.mark.parametrize(("file", "interpreted"), FILES)
def test_the_kernels_hold(file: str, interpreted: str, tmp_path: Path) -> None:
    if find_spec("triton") is None:
        pytest.skip("Triton is made for Linux alone")
    chosen = {"TRITON_INTERPRET": interpreted, "TRITON_CACHE_DIR": str(tmp_path)}
    # numpy warns of the overflows and of the −inf that a GPU takes silently.
    command = [sys.executable, "-m", "pytest", "-q", "-W", "ignore::RuntimeWarning"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "-n", "0", file],
        cwd=ROOT,
        env=os.environ | chosen | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr
