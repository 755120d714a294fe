"""`probmap map` on a file that is larger than the memory it may take."""

import json
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.numpy

from bulk_files import INPUTS, Array
from server import ROOT

CLASSES = 32_000
GROWTH_BYTES = 64 << 20

ROWS = {"jsonl": 960}
"""Lines take five bytes a class: 154 MB, which are enough, and long to read."""

MOST_ROWS = 1440
"""184 MB of float32."""

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


def row(place: int) -> Array:
    """Zeros, but for one class that takes all of the mass."""
    logits = np.zeros(CLASSES, np.float32)
    logits[place * 7 % CLASSES] = 10
    return logits


def write_rows(path: Path, rows: int) -> None:
    """Writes so many rows without holding them."""
    pieces = (np.stack([row(start + n) for n in range(32)]) for start in range(0, rows, 32))
    if path.suffix == ".npy":
        array = np.lib.format.open_memmap(path, "w+", np.float32, (rows, CLASSES))
        for start, piece in zip(range(0, rows, 32), pieces, strict=True):
            array[start : start + 32] = piece
    elif path.suffix == ".safetensors":
        size = rows * CLASSES * 4
        entry = {"dtype": "F32", "shape": [rows, CLASSES], "data_offsets": [0, size]}
        header = json.dumps({"logits": entry}).encode()
        header += b" " * (-len(header) % 8)
        with path.open("wb") as file:
            file.write(struct.pack("<Q", len(header)) + header)
            file.writelines(piece.tobytes() for piece in pieces)
    elif path.suffix == ".jsonl":
        with path.open("w", encoding="utf-8") as file:
            for place in range(rows):
                file.write(json.dumps({"logits": row(place).tolist()}) + "\n")
    else:
        schema = pa.schema({"logits": pa.list_(pa.float32(), CLASSES)})
        with open_writer(path, schema) as writer:
            for piece in pieces:
                column = pa.FixedSizeListArray.from_arrays(pa.array(piece.ravel()), CLASSES)
                writer.write_batch(pa.record_batch([column], schema=schema))


def open_writer(path: Path, schema: Any) -> Any:
    if path.suffix == ".parquet":
        # Packed, a few bytes would be enough for all of the zeros.
        return pq.ParquetWriter(path, schema, compression="none", use_dictionary=False)
    if path.suffix == ".arrow":
        return pa.ipc.new_file(str(path), schema)
    return pa.ipc.new_stream(str(path), schema)


@pytest.mark.parametrize("suffix", INPUTS)
def test_a_file_larger_than_the_memory_is_mapped(suffix: str, tmp_path: Path) -> None:
    small, large = tmp_path / f"small.{suffix}", tmp_path / f"large.{suffix}"
    rows = ROWS.get(suffix, MOST_ROWS)
    write_rows(small, 64)
    write_rows(large, rows)
    assert large.stat().st_size > 2 * GROWTH_BYTES
    wanted = "support,support_size,normalizer"
    flags = ["--mapping", "entmax", "--outputs", wanted]
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
    assert found["support_size"].tolist() == [1] * rows
    assert found["support_indices"].tolist() == (np.arange(rows) * 7 % CLASSES).tolist()
