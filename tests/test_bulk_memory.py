"""`probmap map` on a file that is larger than the memory it may take."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import safetensors.numpy

from server import ROOT

ROWS, CLASSES = 3200, 32_000
"""400 MB of float32."""

GROWTH_BYTES = 100 << 20

MEASURED = """
import re, sys
from pathlib import Path
from service.cli import main

def status(name):
    return int(re.search(rf"{name}:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024

small, large, *flags = sys.argv[1:]
assert main(["map", "--input", small, "--output", f"{small}.safetensors", *flags]) == 0
Path("/proc/self/clear_refs").write_text("5")
before = status("VmRSS")
assert main(["map", "--input", large, "--output", f"{large}.safetensors", *flags]) == 0
print(status("VmHWM") - before)
"""


def test_a_file_larger_than_the_memory_is_mapped(tmp_path: Path) -> None:
    # Zeros that nobody wrote take no room on the disk.
    small, large = tmp_path / "small.npy", tmp_path / "large.npy"
    for path, rows in ((small, 64), (large, ROWS)):
        array = np.lib.format.open_memmap(path, "w+", np.float32, (rows, CLASSES))
        array[np.arange(rows), np.arange(rows) * 7 % CLASSES] = 10
        del array
    assert large.stat().st_size > 3 * GROWTH_BYTES
    flags = ["--mapping", "entmax", "--outputs", "support,support_size,normalizer"]
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(small), str(large), *flags],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert re.fullmatch(r"-?\d+\n", done.stdout), done.stdout
    assert int(done.stdout) < GROWTH_BYTES
    found = safetensors.numpy.load_file(f"{large}.safetensors")
    assert found["support_size"].tolist() == [1] * ROWS
    assert found["support_indices"].tolist() == (np.arange(ROWS) * 7 % CLASSES).tolist()
