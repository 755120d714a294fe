"""Lifts the large number arrays out of a JSON body and parses them piece by piece.

A JSON parser holds the interpreter's lock for the whole of its input, and 30 MB take it long
enough to hold up every other request. Here no single call sees more than `PIECE_BYTES`, and each
piece becomes numpy before the next is read, so that millions of Python numbers never pile up.

An array is lifted when it holds numbers, nulls or rows of them, and is long. As such an array has
no quote and no brace in it, it lies between two of them, and those are found by plain byte search.
What is left of the body is small, and one call of the parser reads it.
"""

import re
import secrets
from dataclasses import dataclass, field
from typing import Any

import orjson

from schemas.errors import InvalidRequest, Loc, path
from service.errors import MalformedBody, TooLarge
from service.settings import Settings
from service.wire.json_location import next_location
from service.wire.numbers import Numbers, NumbersBuilder

LONG_BYTES = 64 << 10
"""Arrays shorter than this (bytes) are left to the parser."""

PIECE_BYTES = 256 << 10
"""The most that one call parses of an array (bytes): about a millisecond."""

REST_BYTES = 2 << 20
"""The most that may be left of a body without its long number arrays (bytes)."""

MAX_LIFTED = 256
"""The most arrays lifted out of one body (a count): more than any request has fields."""

_MALFORMED = "the body is not valid JSON"

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_SPACE = re.compile(rb"[ \t\r\n]*+")
_TWO_ENDS = re.compile(rb"\][ \t\r\n]*+\]")
_TWO_STARTS = re.compile(rb"\[[ \t\r\n]*+\[")
_TOO_DEEP = re.compile(rb"(?:\[[ \t\r\n]*+){1024}+")
_KEY_BEFORE = re.compile(rb'"([A-Za-z_]{1,64})"[ \t\r\n]*:[ \t\r\n]*\Z')


def parse(body: bytearray, settings: Settings) -> object:
    """The value of a JSON body, its long arrays of numbers as Numbers.

    Raises:
        MalformedBody: the body is not JSON.
        InvalidRequest: a long array holds something other than numbers.
        TooLarge: an array, or the body without its arrays, is over a limit.
    """
    lifter = _Lifter(body, settings)
    if len(body) >= LONG_BYTES:
        lifter.lift()
    try:
        value = orjson.loads(lifter.text if lifter.lifted else body)
    except orjson.JSONDecodeError as error:
        if lifter.lifted:
            raise MalformedBody(f"{_MALFORMED}: {error.msg}, beside its long arrays") from None
        raise _malformed(error.pos, error.msg) from None
    return lifter.restored(value) if lifter.lifted else value


def _malformed(place: int, reason: str) -> MalformedBody:
    return MalformedBody(f"{_MALFORMED}: {reason}, at character {place}")


@dataclass(slots=True)
class _Lifter:
    """Cuts the long number arrays out of a body, a placeholder left for each."""

    body: bytearray
    settings: Settings
    text: bytearray = field(default_factory=bytearray)
    lifted: dict[str, Numbers] = field(default_factory=dict)
    token: str = field(default_factory=lambda: secrets.token_hex(16))
    copied: int = 0

    def lift(self) -> None:
        """Leaves in `text` the body without its arrays, which are then in `lifted`."""
        body, at, size = self.body, 0, len(self.body)
        marks = dict.fromkeys((b'"', b"{", b"}"), -1)
        while at < size:
            for mark, place in marks.items():
                if place < at:
                    found = body.find(mark, at)
                    marks[mark] = size if found < 0 else found
            stop = min(marks.values())
            if stop - at >= LONG_BYTES:
                self._lift_between(at, stop)
            if len(self.text) + stop - self.copied > REST_BYTES:
                raise TooLarge(
                    f"the body has more than {REST_BYTES:,} bytes beside its number arrays"
                )
            at = stop + 1
            if stop == marks[b'"']:
                string = _STRING.match(body, stop, stop + REST_BYTES)
                at = string.end() if string else stop + REST_BYTES
        self.text += body[self.copied :]

    def _lift_between(self, at: int, stop: int) -> None:
        """Lifts the long arrays of a stretch of the body without quotes and braces."""
        start = self.body.find(b"[", at, stop)
        while start >= 0 and stop - start >= LONG_BYTES:
            if len(self.lifted) == MAX_LIFTED:
                raise TooLarge(f"the body has more than {MAX_LIFTED} arrays of numbers")
            numbers, after = self._read(start, stop)
            placeholder = f"{self.token}:{len(self.lifted)}"
            self.lifted[placeholder] = numbers
            self.text += self.body[self.copied : start]
            self.text += f'"{placeholder}"'.encode()
            self.copied = after
            start = self.body.find(b"[", after, stop)

    def _read(self, start: int, stop: int) -> tuple[Numbers, int]:
        """The array that starts at `start`, and where the body goes on after it."""
        key = _KEY_BEFORE.search(self.body, max(0, start - 128), start)
        loc: Loc = (key[1].decode() if key else "the body",)
        try:
            return _ArrayReader(self.body, stop, loc, self.settings).read(start)
        except InvalidRequest:
            # Only for the sake of an error is it worth finding out where the array stands.
            loc = next_location(self.text + self.body[self.copied : start]) or loc
            return _ArrayReader(self.body, stop, loc, self.settings).read(start)

    def restored(self, value: object) -> object:
        """The value with each placeholder's array back in its place."""
        holder = [value]
        stack: list[Any] = [holder]
        while stack:
            node = stack.pop()
            entries = node.items() if isinstance(node, dict) else enumerate(node)
            for key, child in list(entries):
                if isinstance(child, dict | list):
                    stack.append(child)
                elif isinstance(child, str) and child in self.lifted:
                    node[key] = self.lifted[child]
                if isinstance(key, str) and key in self.lifted:
                    raise MalformedBody("the body is not valid JSON: a key is an array")
        return holder[0]


@dataclass(frozen=True, slots=True)
class _ArrayReader:
    """Reads one array of numbers, or of rows of numbers, out of a body.

    Attributes:
        body: the whole of it.
        stop: where the stretch without quotes and braces ends, and the array must have.
        loc: where in the body the array stands, for messages.
        settings: the limits.
    """

    body: bytearray
    stop: int
    loc: Loc
    settings: Settings

    def read(self, start: int) -> tuple[Numbers, int]:
        """The array that starts at `start`, and where the body goes on after it."""
        builder = NumbersBuilder(self.loc, self.settings)
        first = self._skip(start + 1)
        if self.body[first : first + 1] == b"[":
            after = self._rows(first, builder)
        else:
            after = self._flat(start, builder)
        return builder.finished(), after

    def _flat(self, start: int, builder: NumbersBuilder) -> int:
        """Reads an array of numbers; returns where the body goes on after it."""
        end = self.body.find(b"]", start, self.stop)
        if end < 0:
            raise self._unreadable(self.stop)
        inner = self.body.find(b"[", start + 1, end)
        if inner >= 0:
            raise self._unreadable(inner)
        at = start + 1
        if self._skip(at) == end:
            return end + 1
        while at <= end:
            cut = end
            if end - at > PIECE_BYTES:
                cut = self.body.rfind(b",", at, at + PIECE_BYTES)
                if cut < 0:
                    raise _malformed(at, f"no number ends within {PIECE_BYTES:,} characters")
            values = self._list(at, cut)
            if not values:
                raise _malformed(cut, "a number is missing")
            builder.add_numbers(values)
            at = cut + 1
        return end + 1

    def _rows(self, start: int, builder: NumbersBuilder) -> int:
        """Reads rows of numbers, the first at `start`; returns where the body goes on."""
        body, at = self.body, start
        while True:
            if body[at : at + 1] != b"[":
                raise self._unreadable(at)
            limit = min(at + PIECE_BYTES, self.stop)
            ends = _TWO_ENDS.search(body, at, limit)
            cut = ends.start() + 1 if ends else body.rfind(b"]", at, limit) + 1
            if cut > 0:
                builder.add_rows(self._list(at, cut))
            else:
                builder.open_row()
                cut = self._flat(at, builder)
                builder.close_row()
            at = self._skip(cut)
            if body[at : at + 1] == b"]":
                return at + 1
            if body[at : at + 1] != b",":
                raise _malformed(at, "rows are not separated by commas")
            at = self._skip(at + 1)

    def _list(self, start: int, stop: int) -> list[object]:
        try:
            values = orjson.loads(b"".join((b"[", self.body[start:stop], b"]")))
        except orjson.JSONDecodeError as error:
            if _TWO_STARTS.search(self.body, start, stop):
                raise self._unreadable(start) from None
            raise _malformed(start + max(0, error.pos - 1), error.msg) from None
        assert isinstance(values, list)
        return values

    def _skip(self, at: int) -> int:
        """The next place that is not white space; bounded, as any one search must be."""
        space = _SPACE.match(self.body, at, at + PIECE_BYTES)
        return space.end() if space else at

    def _unreadable(self, at: int) -> Exception:
        """The error of an array that goes on in a way no array of numbers does."""
        if at >= len(self.body):
            return _malformed(at, "an array does not end")
        if self.body[at] in b",]:":
            return _malformed(at, "a value is missing")
        if _TOO_DEEP.match(self.body, at, at + PIECE_BYTES):
            return _malformed(at, "arrays nest too deep")
        message = f"{path(self.loc)} should be an array of numbers, or of rows of numbers"
        return InvalidRequest.at(self.loc, message)
