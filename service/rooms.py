"""Memory for large bodies, kept from one request to the next.

Memory that a process has not touched yet costs more to touch (the system takes and zeroes each
page) than a body takes to arrive. The heap keeps what is freed, but cuts it up for smaller things,
so that the next body of the same size no longer fits; these are kept whole.
"""

import threading
import weakref

import numpy as np
from numpy.typing import NDArray

STEP_BYTES = 1 << 20
"""Sizes are rounded up to this (bytes), so that bodies of about one size fit one another's room."""

MOST_TOO_LARGE = 2
"""How many times as large as a body a room for it may be."""

KEPT_BYTES = 128 << 20
"""The most that is kept free (bytes)."""


class Rooms:
    """Rooms for bodies, each free again when nothing refers to it any more; for any thread."""

    def __init__(self) -> None:
        self._free: list[NDArray[np.uint8]] = []
        self._lock = threading.RLock()

    @property
    def free_bytes(self) -> int:
        """What is kept (bytes)."""
        return sum(block.nbytes for block in self._free)

    def room(self, size: int) -> memoryview:
        """Room for so many bytes, which hold anything.

        Tensors and views made of it keep it from being used again.
        """
        block = self._fitting(size)
        if block is None:
            block = np.empty(-(-size // STEP_BYTES) * STEP_BYTES, np.uint8)
        view = block[:size]
        weakref.finalize(view, self._keep, block).atexit = False
        return view.data

    def trim(self) -> None:
        """Gives up what is free."""
        with self._lock:
            self._free.clear()

    def _fitting(self, size: int) -> NDArray[np.uint8] | None:
        """The smallest free block for a size, taken out of the free ones; None: none fits."""
        with self._lock:
            fit = [block for block in self._free if size <= block.nbytes <= MOST_TOO_LARGE * size]
            if not fit:
                return None
            chosen = min(fit, key=lambda block: block.nbytes)
            self._free = [block for block in self._free if block is not chosen]
            return chosen

    def _keep(self, block: NDArray[np.uint8]) -> None:
        # A collection may call this in the middle of any other method: hence the lock's kind.
        with self._lock:
            if self.free_bytes + block.nbytes <= KEPT_BYTES:
                self._free.append(block)
