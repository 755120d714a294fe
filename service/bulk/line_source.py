"""Requests in a file of JSON lines, some lines at a time."""

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from mappings.errors import ProbmapError
from schemas.read import read_request
from schemas.request import MapRequest
from service.bulk.piece import AskedOfRows, Item, Piece
from service.engine.job import Job
from service.settings import Settings
from service.wire.field_places import Fields
from service.wire.json_decode import job_of
from service.wire.jsonl import LineExchange, taken_operation

PIECE_LINES = 64
"""The most lines of a piece (a count)."""

PIECE_BYTES = 1 << 20
"""The length from which on a piece takes no further line (bytes)."""

TABLE_FIELDS = ("outputs", "support_limit", "invalid_rows", "dtype")
"""What all lines have to agree on where their answers become one table."""


class LineSource:
    """One request a line, as of /v1/stream; see service.bulk.piece.Source."""

    has_lines = True
    rows: int | None = None

    def __init__(
        self,
        path: Path,
        merged: Callable[[Fields], Fields],
        settings: Settings,
        *,
        is_table: bool,
    ) -> None:
        """Reads nothing yet.

        Args:
            path: of the file; empty lines do not count.
            merged: what is asked, given the fields of a line.
            settings: the limits.
            is_table: whether all answers must have the same outputs: those of no line's own.

        Raises:
            ProbmapError: what is asked of all lines cannot be.
            OSError: the file is not there.
        """
        self._path = path
        self._bytes = path.stat().st_size
        self._merged = merged
        self._settings = settings
        shared = {name: value for name, value in merged({}).items() if name in TABLE_FIELDS}
        self._fixed: Fields = {}
        if is_table:
            self._fixed = {"dtype": "float64", **shared, "jacobian": None}
            for name in TABLE_FIELDS:
                default = MapRequest.model_fields[name].default
                self._fixed.setdefault(name, default)
        request = read_request(MapRequest, {"mapping": "softmax", **shared}, widths=[])
        is_double = request.dtype != "float32"
        self.asked = AskedOfRows(request, torch.float64 if is_double else torch.float32, None)

    def pieces(self, first: int) -> Iterator[Piece]:
        """The pieces from the one at place `first` on; those before are read, but not looked at."""
        for start, lines, place in islice(self._parts(), first, None):
            items = [self._item(start + offset, line) for offset, line in enumerate(lines)]
            yield Piece(items, place / max(1, self._bytes))

    def beginning(self, rows: int | None) -> Job:
        """There is none: lines need not ask for the same."""
        raise ValueError(
            f"{self._path} holds requests, whose answers do not fit one table; name a file for "
            "them with --output, such as answers.jsonl"
        )

    def _parts(self) -> Iterator[tuple[int, list[bytes], int]]:
        """Some lines, with the first one's place, and how far in the file they end (bytes)."""
        lines: list[bytes] = []
        start = size = place = 0
        with self._path.open("rb") as file:
            for line in file:
                place += len(line)
                if not line.strip():
                    continue
                lines.append(line)
                size += len(line)
                if len(lines) == PIECE_LINES or size >= PIECE_BYTES:
                    yield start, lines, place
                    start += len(lines)
                    lines, size = [], 0
        if lines:
            yield start, lines, place

    def _item(self, index: int, line: bytes) -> Item:
        exchange = LineExchange(index, self._settings)
        job: Job | ProbmapError
        try:
            fields: dict[str, Any] = {
                **self._merged(exchange.read(bytearray(line.strip()))),
                **self._fixed,
            }
            job = job_of(fields, taken_operation(fields), self._settings)
        except ProbmapError as error:
            job = error
        return Item(index, exchange.id, job)
