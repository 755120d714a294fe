"""An HTTP answer, read to its end."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer.

    Attributes:
        status: the HTTP status.
        headers: by name, whatever its case.
        body: its bytes; arrays of an answer are views of them.
    """

    status: int
    headers: Mapping[str, str]
    body: bytearray
