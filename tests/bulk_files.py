"""Files of logits in every format that `probmap map` reads, and answers from what it writes."""

import contextlib
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import safetensors.numpy
from numpy.typing import NDArray

from service.cli import main

Array = NDArray[Any]

INPUTS = ["npy", "safetensors", "arrow", "arrows", "parquet", "jsonl"]
OUTPUTS = ["npz", "safetensors", "arrow", "arrows", "parquet", "jsonl"]


@dataclass
class Run:
    """What one run of the command line did."""

    code: int
    out: str
    err: str


def probmap(*arguments: object) -> Run:
    """Runs `probmap map` in this process: a new one takes seconds to import torch."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(["map", *map(str, arguments)])
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 1
    assert "Traceback" not in err.getvalue()
    return Run(code, out.getvalue(), err.getvalue())


def succeeded(*arguments: object) -> None:
    """Runs the command line, which has to answer all rows, and to say nothing."""
    run = probmap(*arguments)
    assert (run.code, run.out, run.err) == (0, "", "")


def write_logits(path: Path, logits: Sequence[Array], alpha: Sequence[float] | None) -> list[str]:
    """Writes rows, with an alpha each, in the format of the suffix; the flags they need beside."""
    same = len({len(row) for row in logits}) == 1
    if path.suffix == ".npy":
        np.save(path, np.stack(logits))
        return [] if alpha is None else ["--alpha", ",".join(map(repr, alpha))]
    if path.suffix == ".safetensors":
        tensors = {"logits": np.stack(logits)}
        if alpha is not None:
            tensors["alpha"] = np.array(alpha)
        safetensors.numpy.save_file(tensors, path)
    elif path.suffix == ".jsonl":
        with path.open("w", encoding="utf-8") as file:
            for row, values in enumerate(logits):
                numbers = [None if value == -np.inf else value for value in values.tolist()]
                more = {} if alpha is None else {"alpha": alpha[row]}
                file.write(json.dumps({"id": f"row {row}", "logits": numbers, **more}) + "\n")
    else:
        number = pa.from_numpy_dtype(logits[0].dtype)
        kind = pa.list_(number, len(logits[0])) if same else pa.list_(number)
        columns = {"logits": pa.array([row.tolist() for row in logits], kind)}
        if alpha is not None:
            columns["alpha"] = pa.array(alpha, pa.float64())
        write_table(path, pa.table(columns))
    return []


def write_table(path: Path, table: Any) -> None:
    """Writes a table as Arrow file, Arrow stream or Parquet."""
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=13)
    elif path.suffix == ".arrow":
        feather.write_feather(table, path, chunksize=17, compression="zstd")
    else:
        with pa.ipc.new_stream(str(path), table.schema) as writer:
            writer.write_table(table, max_chunksize=11)


def read_answers(path: Path) -> dict[str, Any]:
    """Every output by name, as numpy; a support as the lists of its rows' parts."""
    if path.suffix == ".jsonl":
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return _lists([_row(line) for line in lines])
    if path.suffix == ".npy":
        return {"probabilities": np.load(path)}
    if path.suffix in (".npz", ".safetensors"):
        found: dict[str, Any] = (
            dict(np.load(path)) if path.suffix == ".npz" else safetensors.numpy.load_file(path)
        )
        if "support_offsets" in found:
            cuts = found.pop("support_offsets")[1:-1]
            for name in ("indices", "probabilities", "log_probabilities"):
                parts = np.split(found[f"support_{name}"], cuts)
                found[f"support_{name}"] = [part.tolist() for part in parts]
        if found.get("status") is not None and found["status"].dtype == np.uint8:
            texts = [bytes(row).rstrip(b"\0").decode() for row in found["status"]]
            found["status"] = np.array(texts)
        return found
    rows = read_table(path).to_pylist()
    return _lists([{name: value for name, value in row.items() if name != "error"} for row in rows])


def read_table(path: Path) -> Any:
    """The table in an Arrow file, an Arrow stream or a Parquet file."""
    if path.suffix == ".parquet":
        return pq.read_table(path)
    with pa.OSFile(str(path)) as source:
        opened = pa.ipc.open_file if path.suffix == ".arrow" else pa.ipc.open_stream
        return opened(source).read_all()


def _row(line: dict[str, Any]) -> dict[str, Any]:
    """The answer to the one row of a line."""
    assert line["rows"] == 1
    beside = ("index", "id", "mapping", "rows")
    found = {name: value[0] for name, value in line.items() if name not in beside}
    support = found.pop("support", None)
    if support is not None:
        found |= {f"support_{name}": values for name, values in support.items()}
    return found


def _lists(rows: list[dict[str, Any]]) -> dict[str, Any]:
    names = rows[0] if rows else {}
    columns = {name: [row[name] for row in rows] for name in names}
    # Supports have a length each, and rows without an answer none.
    listed = {
        name
        for name, values in columns.items()
        if (name.startswith("support_") and name != "support_size") or None in values
    }
    return {
        name: values if name in listed else np.array(values) for name, values in columns.items()
    }
