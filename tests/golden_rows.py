"""The golden rows: answers of an independent computation in 60 digits, printed as doubles."""

import json
from pathlib import Path
from typing import Any

import pytest

GOLDEN = Path(__file__).parent / "golden"


def _read(name: str) -> list[dict[str, Any]]:
    lines = (GOLDEN / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


ROWS = [*_read("mappings"), *_read("seeds")]
PLAIN = [row for row in ROWS if "processors" not in row]
"""The rows that a mapping alone answers."""


def each(rows: list[dict[str, Any]], holding: str = "id") -> pytest.MarkDecorator:
    """Runs a test once for every row that holds `holding`."""
    held = [row for row in rows if holding in row]
    return pytest.mark.parametrize("row", held, ids=[row["id"] for row in held])


def printed(row: dict[str, Any]) -> float:
    """Half a unit of the row's last printed decimal; 0 where it was printed in full."""
    return 0.5 * 10.0 ** -row["decimals"] if row.get("decimals", 16) < 12 else 0.0
