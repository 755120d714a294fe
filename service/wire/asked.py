"""What the rows of a whole table are asked, however they are divided."""

from collections.abc import Sequence
from typing import Protocol

import torch

from schemas.request import Request


class Asked(Protocol):
    """What all rows of a table are asked."""

    @property
    def request(self) -> Request:
        """What is asked, as of no rows or of the first."""

    @property
    def dtype(self) -> torch.dtype:
        """Of the answers."""

    @property
    def classes(self) -> int | None:
        """Of every row (a count); None: rows may differ in length."""

    @property
    def by_row(self) -> Sequence[str]:
        """The fields that every row has a value of its own of."""
