"""The little of Arrow's framing that cuts a stream into messages, read as if its sender meant harm.

A message is 0xFFFFFFFF, the length of its metadata (4 bytes, little-endian), the metadata, and a
body. The metadata are a flatbuffer: tables of which each names, in a vtable of 16-bit numbers,
where its fields lie. Only what says how long a body is and what it holds is read here.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum

from service.errors import MalformedBody

MEDIA_TYPE = "application/vnd.apache.arrow.stream"

PREFIX_BYTES = 8
"""What comes before the metadata (bytes)."""

CONTINUATION = b"\xff\xff\xff\xff"
"""What every message begins with since Arrow 0.15."""

FILE_MAGIC = b"ARROW1"
"""What an Arrow file begins with, which is no stream."""

MAX_METADATA_BYTES = 1 << 20
"""The longest metadata (bytes): what is long in a request belongs in columns."""

VERSIONS = (3, 4)
"""V4 and V5 of the metadata, which is what Arrow has written since 0.8."""


class Kind(IntEnum):
    """What a message is, as the format counts it."""

    SCHEMA = 1
    DICTIONARY = 2
    BATCH = 3


@dataclass(frozen=True, slots=True)
class Head:
    """What the metadata of a message say of its body.

    Attributes:
        kind: what the message is.
        body_bytes: how long its body is (bytes).
        is_compressed: whether the body of a batch is.
        is_big_endian: whether the numbers under a schema are.
    """

    kind: Kind
    body_bytes: int
    is_compressed: bool = False
    is_big_endian: bool = False


def malformed(reason: str) -> MalformedBody:
    """The error of what is no Arrow stream."""
    return MalformedBody(f"the body is not a valid Arrow IPC stream: {reason}")


def metadata_bytes(prefix: bytes | bytearray) -> int:
    """How long the metadata are, by what comes before them (bytes); 0 is the stream's end.

    Raises:
        MalformedBody: this is no beginning of a message.
    """
    if prefix.startswith(FILE_MAGIC):
        raise malformed("it is an Arrow file; write it as a stream (pyarrow.ipc.new_stream)")
    if not prefix.startswith(CONTINUATION):
        raise malformed("a message should begin with the bytes FF FF FF FF")
    size = int.from_bytes(prefix[4:PREFIX_BYTES], "little")
    if size > MAX_METADATA_BYTES:
        raise malformed(
            f"a message has more than {MAX_METADATA_BYTES:,} bytes of metadata; give long lists as "
            "columns"
        )
    return size


def read_head(metadata: bytes | bytearray | memoryview) -> Head:
    """What a message's metadata say of its body.

    Raises:
        MalformedBody: they are none, or of a kind that a stream of batches does not have.
    """
    try:
        message = _Table(metadata, 0)
        version, kind, size = message.int16(0), message.uint8(1), message.int64(3)
        if version not in VERSIONS:
            raise malformed("its metadata have an unknown version")
        if kind not in list(Kind):
            raise malformed("a message is neither a schema nor a batch")
        if size < 0:
            raise malformed("a message has a body of negative length")
        header = message.table(2)
        if kind == Kind.SCHEMA:
            return Head(Kind.SCHEMA, size, is_big_endian=header.int16(0) != 0)
        return Head(Kind(kind), size, is_compressed=kind == Kind.BATCH and header.has(3))
    except (struct.error, IndexError):
        raise malformed("a message's metadata are broken") from None


class _Table:
    """A table of a flatbuffer; IndexError and struct.error say that it leads outside."""

    def __init__(self, data: bytes | bytearray | memoryview, place: int) -> None:
        """Reads where the table is, at `place`, and where its fields are."""
        self._data = data
        self._at = self._follow(place)
        self._vtable = self._at - self._read("<i", self._at)
        self._vtable_bytes = self._read("<H", self._vtable)

    def has(self, field: int) -> bool:
        """Whether a field is given."""
        return self._place(field) is not None

    def uint8(self, field: int) -> int:
        """A field of 8 bits; 0 when it is not given, as for all numbers."""
        return self._number("<B", field)

    def int16(self, field: int) -> int:
        """A signed field of 16 bits."""
        return self._number("<h", field)

    def int64(self, field: int) -> int:
        """A signed field of 64 bits."""
        return self._number("<q", field)

    def table(self, field: int) -> "_Table":
        """A field that is a table."""
        place = self._place(field)
        if place is None:
            raise IndexError
        return _Table(self._data, place)

    def _number(self, form: str, field: int) -> int:
        place = self._place(field)
        return 0 if place is None else self._read(form, place)

    def _place(self, field: int) -> int | None:
        entry = 4 + 2 * field
        if entry + 2 > self._vtable_bytes:
            return None
        offset = self._read("<H", self._vtable + entry)
        return self._at + offset if offset else None

    def _follow(self, place: int) -> int:
        return place + self._read("<I", place)

    def _read(self, form: str, place: int) -> int:
        # A negative place would be counted from the end.
        if place < 0:
            raise IndexError
        value = struct.unpack_from(form, self._data, place)[0]
        assert isinstance(value, int)
        return value
