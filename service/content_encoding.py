"""Content-Encoding: bodies are inflated within a limit, answers compressed where asked."""

import zlib
from collections.abc import Sequence

from service.errors import MalformedBody, UnsupportedEncoding
from service.wire.exchange import Encoded
from service.wire.preferences import preferences

CODINGS = ("gzip", "deflate")
"""The codings that are read and written."""

PLAIN = ("", "identity")

GZIP_WINDOW = 31
ZLIB_WINDOW = 15
RAW_WINDOW = -15

LEVEL = 1
"""How hard answers are compressed: numbers gain little from more, and it takes far longer."""

PIECE_BYTES = 1 << 20
"""The most that one call compresses (bytes)."""


def coding_of(header: str) -> str | None:
    """The coding that a body's Content-Encoding names; None: it is as it is.

    Raises:
        UnsupportedEncoding: it is another, or more than one.
    """
    named = header.strip().lower().removeprefix("x-")
    if named in PLAIN:
        return None
    if named not in CODINGS:
        raise UnsupportedEncoding(
            f"the body's Content-Encoding should be {' or '.join(CODINGS)}, one of them and once; "
            "or send the body as it is"
        )
    return named


class Inflation:
    """A compressed body being inflated, some of it at a time."""

    def __init__(self, coding: str, source: bytearray) -> None:
        self._source = memoryview(source)
        self._coding = coding
        self._at = 0
        self._stream = zlib.decompressobj(self._window())

    @property
    def is_over(self) -> bool:
        """Whether all of it is inflated."""
        return self._stream.eof

    def step(self, size: int) -> bytes:
        """The next bytes, at most `size`; may run on any thread.

        Raises:
            MalformedBody: the body is not compressed in this coding, or not to its end.
        """
        part = self._source[self._at : self._at + size]
        try:
            inflated = self._stream.decompress(part, size)
        except zlib.error:
            raise MalformedBody(f"the body is not valid {self._coding}") from None
        left = len(self._stream.unconsumed_tail) + len(self._stream.unused_data)
        self._at += len(part) - left
        is_read = self._at == len(self._source)
        if self.is_over and not is_read:
            raise MalformedBody(f"the body goes on after its {self._coding} data ends")
        if is_read and not self.is_over and len(inflated) < size:
            raise MalformedBody(f"the body's {self._coding} data is cut short; send all of it")
        return inflated

    def _window(self) -> int:
        if self._coding == "gzip":
            return GZIP_WINDOW
        # The name means the zlib format, but some send what it has inside.
        start = bytes(self._source[:2])
        wrapped = len(start) == 2 and start[0] & 15 == 8 and int.from_bytes(start) % 31 == 0
        return ZLIB_WINDOW if wrapped else RAW_WINDOW


def asked_coding(header: str) -> str | None:
    """The coding that an Accept-Encoding asks for; None: the answer goes out as it is.

    Only what names one coding of ours alone, or above the others, asks for it. HTTP libraries
    send "gzip, deflate" unasked, and numbers take longer to compress than to send to a neighbour.
    """
    weights = {name.removeprefix("x-"): weight for name, weight in preferences(header)}
    ours = sorted((weights.get(name, 0.0), name) for name in CODINGS)
    others = [weight for name, weight in weights.items() if name not in CODINGS]
    best, name = ours[-1]
    return name if best > max(ours[0][0], *others, 0.0) else None


def compressed(body: Encoded, coding: str) -> Encoded:
    """An answer's body in a coding; may run on any thread."""
    stream = zlib.compressobj(LEVEL, wbits=GZIP_WINDOW if coding == "gzip" else ZLIB_WINDOW)
    parts = [stream.compress(piece) for part in body.parts for piece in _pieces(part)]
    parts.append(stream.flush())
    headers = [*body.headers, (b"content-encoding", coding.encode())]
    return Encoded([part for part in parts if part], body.media_type, headers)


def _pieces(part: bytes | memoryview) -> Sequence[memoryview]:
    view = memoryview(part)
    return [view[start : start + PIECE_BYTES] for start in range(0, len(view), PIECE_BYTES)]
