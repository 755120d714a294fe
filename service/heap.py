"""The C library's heap: what was freed is kept for what comes next, and given back when idle.

Where the C library is not glibc (musl, macOS), nothing here does anything.
"""

import ctypes
from collections.abc import Callable

MEBIBYTE = 1 << 20

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
"""Names of mallopt's parameters in glibc's <malloc.h>."""

KEPT = {M_ARENA_MAX: 1, M_MMAP_THRESHOLD: 32 * MEBIBYTE, M_TRIM_THRESHOLD: 48 * MEBIBYTE}
"""One heap for all threads, on it all but the largest tensors, and how much of it may lie free."""


def keep_freed_memory() -> None:
    """Keeps freed memory for the next tensors; to be called before the first thread starts.

    By default glibc maps every large tensor anew, and the system zeroes its pages as they are
    first touched, which costs more than most mappings.
    """
    if (mallopt := _found("mallopt")) is not None:
        for parameter, value in KEPT.items():
            mallopt(parameter, value)


def trim_heap() -> None:
    """Gives free memory back to the system.

    Answers of many sizes, made and freed on several threads, leave holes that glibc would keep
    for good: after an overload a server stayed a tenth to a quarter larger than before.
    """
    if (malloc_trim := _found("malloc_trim")) is not None:
        malloc_trim(0)


def _found(name: str) -> Callable[..., int] | None:
    """A function of the C library; None where it has none of this name."""
    try:
        found: Callable[..., int] = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):
        return None
    return found
