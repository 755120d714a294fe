"""Where in a JSON document something stands, found without parsing it."""

import re

from schemas.errors import MAX_NAME, Loc

_TOKEN = re.compile(rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"|[{}\[\],]', re.DOTALL)


def next_location(text: bytes | bytearray) -> Loc:
    """Where the value stands that follows this beginning of a JSON document."""
    loc: list[str | int] = []
    last = ""
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if token[1] is not None:
            last = token[1][:MAX_NAME].decode(errors="replace")
        elif mark in (b"{", b"["):
            if loc and isinstance(loc[-1], str):
                loc[-1] = last
            loc.append("" if mark == b"{" else 0)
        elif mark in (b"}", b"]"):
            loc = loc[:-1]
        elif loc and isinstance(loc[-1], int):
            loc[-1] += 1
    return (*loc[:-1], last) if loc and isinstance(loc[-1], str) else tuple(loc)
