"""Arrays of numbers from JSON: strictly typed, bounded, as numpy."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.errors import InvalidRequest, Loc, path
from service.errors import TooLarge
from service.settings import Settings

Array = NDArray[Any]

_KINDS = {float, int, type(None)}

_NAMES = {bool: "true or false", str: "a string", list: "an array", dict: "an object"}


def not_a_number(loc: Loc, found: object) -> InvalidRequest:
    """The error of something that stands where a number is due."""
    kind = _NAMES.get(type(found), "no number")
    masks = ", or null to mask the class" if loc[:1] == ("logits",) else ""
    return InvalidRequest.at(loc, f"{path(loc)} is {kind}; it should be a number{masks}")


@dataclass(frozen=True, slots=True)
class Numbers:
    """An array of numbers, or of rows of numbers.

    Attributes:
        values: (numbers,) float64, or int64 or uint64 where all are integers; −inf for null.
        lengths: (rows,) the numbers of each row, one row after the other in `values`; None for
            an array without rows.
    """

    values: Array
    lengths: NDArray[np.int64] | None

    def rows(self) -> list[Array]:
        """The rows, as views."""
        stops = [] if self.lengths is None else np.cumsum(self.lengths).tolist()
        return [self.values[start:stop] for start, stop in pairwise([0, *stops])]

    def padded(self, filling: float) -> Array:
        """(rows, longest) float64, or the values as they are when they have no rows."""
        if self.lengths is None:
            return self.values
        rows, longest = len(self.lengths), int(self.lengths.max(initial=0))
        if rows * longest == len(self.values):
            return self.values.reshape(rows, longest)
        result = np.full((rows, longest), filling)
        for row, values in enumerate(self.rows()):
            result[row, : len(values)] = values
        return result


@dataclass(slots=True)
class NumbersBuilder:
    """Collects the pieces of one array, within the limits.

    Attributes:
        loc: where in the body the array stands, for messages.
        settings: the limits.
    """

    loc: Loc
    settings: Settings
    parts: list[Array] = field(default_factory=list)
    lengths: list[NDArray[np.int64]] = field(default_factory=list)
    count: int = 0
    rows: int = 0
    longest: int = 0
    row_start: int = 0
    has_rows: bool = False

    def open_row(self) -> None:
        """Starts a row, to be filled by `add_numbers`."""
        self.has_rows = True

    def close_row(self) -> None:
        """Ends the row that was open."""
        self._close(np.array([self.count - self.row_start], np.int64))

    def add_numbers(self, values: Sequence[object]) -> None:
        """Adds numbers to the row that is open, or to an array without rows."""
        kinds = set(map(type, values))
        if not kinds <= _KINDS:
            row = (self.rows,) if self.has_rows else ()
            raise _first_wrong(values, (*self.loc, *row), self.count - self.row_start)
        self._append(values, kinds)

    def add_rows(self, rows: Sequence[Any]) -> None:
        """Adds whole rows."""
        self.has_rows = True
        if set(map(type, rows)) - {list}:
            place = next(place for place, row in enumerate(rows) if type(row) is not list)
            where, name = (*self.loc, self.rows + place), path(self.loc)
            message = f"{path(where)} is no array, but {name} has rows; give every row as an array"
            raise InvalidRequest.at(where, message)
        values = list(chain.from_iterable(rows))
        kinds = set(map(type, values))
        if not kinds <= _KINDS:
            place = next(place for place, row in enumerate(rows) if set(map(type, row)) - _KINDS)
            raise _first_wrong(rows[place], (*self.loc, self.rows + place), 0)
        self._append(values, kinds)
        self._close(np.fromiter(map(len, rows), np.int64, len(rows)))

    def finished(self) -> Numbers:
        """The whole array."""
        lengths = None
        if self.has_rows:
            lengths = np.concatenate(self.lengths) if self.lengths else np.zeros(0, np.int64)
        return Numbers(joined(self.parts), lengths)

    def _append(self, values: Sequence[object], kinds: set[type]) -> None:
        self.count += len(values)
        limit = self.settings.max_elements
        if self.count > limit:
            raise TooLarge.over(f"{path(self.loc)} has more numbers", "max_elements", limit)
        self.parts.append(_array(values, kinds))

    def _close(self, lengths: NDArray[np.int64]) -> None:
        settings = self.settings
        self.lengths.append(lengths)
        self.rows += len(lengths)
        self.row_start = self.count
        self.longest = max(self.longest, int(lengths.max(initial=0)))
        if self.rows > settings.max_rows:
            raise TooLarge.over(f"{path(self.loc)} has more rows", "max_rows", settings.max_rows)
        if self.rows * self.longest > settings.max_elements:
            message = f"{path(self.loc)} has {self.rows:,} rows × {self.longest:,} classes"
            raise TooLarge.over(message, "max_elements", settings.max_elements)


def _first_wrong(values: Sequence[object], loc: Loc, offset: int) -> InvalidRequest:
    """The error of the first of the values that is no number; `offset` were before them."""
    place = next(place for place, value in enumerate(values) if type(value) not in _KINDS)
    return not_a_number((*loc, offset + place), values[place])


def numbers(value: object, loc: Loc, settings: Settings) -> Numbers:
    """A parsed JSON value, which stood at `loc`, as an array of numbers, or of rows of them."""
    if isinstance(value, Numbers):
        return value
    builder = NumbersBuilder(loc, settings)
    if not isinstance(value, list):
        message = f"{path(loc)} should be an array of numbers, or of rows of numbers"
        raise InvalidRequest.at(loc, message)
    if value and isinstance(value[0], list):
        builder.add_rows(value)
    else:
        builder.add_numbers(value)
    return builder.finished()


def joined(parts: Sequence[Array]) -> Array:
    """One array of several: integers where all are, and exactly."""
    parts = [part for part in parts if part.size]
    if not parts:
        return np.zeros(0)
    if len(parts) == 1:
        return parts[0]
    kinds = {part.dtype for part in parts}
    if kinds == {np.dtype(np.int64), np.dtype(np.uint64)}:
        signed = [part for part in parts if part.dtype == np.int64]
        unsigned = all(part.min(initial=0) >= 0 for part in signed)
        return np.concatenate(parts, dtype=np.uint64 if unsigned else np.float64, casting="unsafe")
    return np.concatenate(parts)


def _array(values: Sequence[object], kinds: set[type]) -> Array:
    if kinds == {int}:
        try:
            return np.array(values, np.int64)
        except OverflowError:
            pass
        try:
            return np.array(values, np.uint64)
        except OverflowError:
            return np.array(values, np.float64)
    array = np.array(values, np.float64)
    if type(None) in kinds:
        # JSON has no NaN: what is NaN here was null, which masks a class.
        array[np.isnan(array)] = -np.inf
    return array
