"""The one header of Triton's binary tensor extension."""

from service.errors import MalformedBody

HEADER = "Inference-Header-Content-Length"
"""Says how many bytes of a body are JSON; what follows are tensors."""

MAX_DIGITS = 19
"""The longest number that is read (a count): no body has more bytes."""


def json_length(headers: list[str], body_bytes: int) -> int | None:
    """What the header says of the length of the JSON (bytes); None: it is not there.

    Args:
        headers: every value that it was given.
        body_bytes: the length of the body.

    Raises:
        MalformedBody: it is no number, more than the body has, or given twice.
    """
    if not headers:
        return None
    text = headers[0]
    if len(headers) > 1:
        raise MalformedBody(f"the header {HEADER} is given {len(headers)} times; give it once")
    if not text.isascii() or not text.isdecimal():
        raise MalformedBody(f"the header {HEADER} should be a number of bytes, in digits alone")
    if len(text) > MAX_DIGITS or int(text) > body_bytes:
        raise MalformedBody(
            f"the header {HEADER} should be at most the length of the body, which is "
            f"{body_bytes:,} bytes"
        )
    return int(text)


def tensors_start(text: str, alignment: int) -> int:
    """Where a body's tensors begin, as a remainder of the alignment (bytes); 0: nobody knows.

    Args:
        text: what the header says, not checked yet.
        alignment: a power of 2, at most 16: the last four digits alone tell the remainder.
    """
    return int(text[-4:]) % alignment if text.isascii() and text.isdecimal() else 0
