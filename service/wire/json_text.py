"""Writes JSON in pieces, so that no single call holds the interpreter's lock for long."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

Array = NDArray[Any]

SLICE_NUMBERS = 1 << 14
"""The most numbers that one call writes (a count): under a millisecond."""

MESSAGE_BYTES = 1 << 20
"""About how large the parts of the text become (bytes)."""


class JsonText:
    """A JSON text being written; NaN and ±inf become null, floats their shortest decimals."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._pieces: list[bytes] = []
        self._pending = 0

    def raw(self, text: bytes) -> None:
        """Adds text as it is."""
        self._pieces.append(text)
        self._pending += len(text)
        if self._pending >= MESSAGE_BYTES:
            self._flush()

    def value(self, value: object) -> None:
        """Adds a small value; numpy arrays in it are written too."""
        self.raw(orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY))

    def numbers(self, values: Array) -> None:
        """Adds an array of numbers (numbers,)."""
        if len(values) <= SLICE_NUMBERS:
            self.value(values)
            return
        for start in range(0, len(values), SLICE_NUMBERS):
            self.raw(b"," if start else b"[")
            self.raw(_inner(values[start : start + SLICE_NUMBERS]))
        self.raw(b"]")

    def rows(self, values: Array, lengths: Sequence[int] | None, blank: frozenset[int]) -> None:
        """Adds rows of numbers (rows, longest).

        Args:
            values: the numbers.
            lengths: how many of each row to write; None: all.
            blank: rows that are written as null.
        """
        rows, longest = values.shape
        alike = lengths is None and not blank
        step = max(1, SLICE_NUMBERS // max(1, longest)) if alike else 1
        self.raw(b"[")
        for start in range(0, rows, step):
            if start:
                self.raw(b",")
            if step > 1:
                self.raw(_inner(values[start : start + step]))
            elif start in blank:
                self.raw(b"null")
            else:
                self.numbers(values[start] if lengths is None else values[start, : lengths[start]])
        self.raw(b"]")

    def finished(self) -> list[bytes]:
        """The text, in parts of about `MESSAGE_BYTES`."""
        self._flush()
        return self._parts

    def _flush(self) -> None:
        self._parts.append(b"".join(self._pieces))
        self._pieces.clear()
        self._pending = 0


def _inner(values: Array) -> bytes:
    """The text of an array without its brackets."""
    text = orjson.dumps(np.ascontiguousarray(values), option=orjson.OPT_SERIALIZE_NUMPY)
    return text[1:-1]
