"""System shared memory: regions that clients register and tensors are read from and written to.

Nothing is mapped. A mapped page that its owner cuts off kills the process that touches it
(SIGBUS), and no check before can rule that out; `pread` and `pwrite` just say that the bytes are
not there. The price is one copy, from memory to memory.
"""

import os
import stat
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mappings.errors import ProbmapError
from schemas.errors import shortened
from service.errors import InvalidSharedMemory, NotFound
from service.rooms import Rooms
from service.settings import flag, variable

DIRECTORY = Path("/dev/shm")
"""Where the objects of POSIX shared memory are."""

MAX_REGIONS = 256
"""Regions that can be registered at a time (a count): each holds a file open."""

MAX_NAME_BYTES = 255
"""The longest name of a file (bytes)."""


@dataclass(frozen=True, eq=False)
class Region:
    """A part of a shared memory object, which is held open.

    Attributes:
        name: what the client calls it.
        key: the object's.
        offset: of the region in the object (bytes).
        size: of the region (bytes).
        descriptor: of the open object; closed when nobody holds the region any more, so that one
            unregistered while it is read stays readable.
        rooms: where copies are made.
    """

    name: str
    key: str
    offset: int
    size: int
    descriptor: int
    rooms: Rooms

    def read(self, offset: int, size: int) -> memoryview:
        """A copy of `size` bytes from `offset` of the region on.

        Raises:
            InvalidSharedMemory: they are not in the region, or no longer in its object.
        """
        start = self._start(offset, size)
        buffer = self.rooms.room(size)
        done = 0
        while done < size:
            got = os.preadv(self.descriptor, [buffer[done:]], start + done)
            if not got:
                raise self._shrunk()
            done += got
        return buffer

    def write(self, offset: int, parts: Sequence[bytes | memoryview]) -> None:
        """Writes bytes from `offset` of the region on.

        Raises:
            InvalidSharedMemory: they do not fit the region or its object, or it has no room.
        """
        start = self._start(offset, sum(memoryview(part).nbytes for part in parts))
        for part in parts:
            left = memoryview(part)
            while left:
                try:
                    done = os.pwrite(self.descriptor, left, start)
                except OSError as error:
                    message = f"the shared memory region {shortened(self.name)} cannot be written: "
                    raise InvalidSharedMemory(message + str(error.strerror)) from None
                left, start = left[done:], start + done

    def check(self, offset: int, size: int) -> None:
        """Raises InvalidSharedMemory when the region has no `size` bytes from `offset` on."""
        self._start(offset, size)

    def _start(self, offset: int, size: int) -> int:
        """Where in the object an offset of the region is, once the range is known to be there."""
        if offset + size > self.size:
            raise InvalidSharedMemory(
                f"{size:,} bytes from byte {offset:,} on are not inside the shared memory region "
                f"{shortened(self.name)}, which has {self.size:,}"
            )
        found = os.fstat(self.descriptor)
        if not found.st_nlink:
            raise InvalidSharedMemory(
                f"the shared memory object {shortened(self.key)} of region {shortened(self.name)} "
                "was removed; make it anew, then unregister and register the region"
            )
        if self.offset + offset + size > found.st_size:
            raise self._shrunk()
        return self.offset + offset

    def _shrunk(self) -> ProbmapError:
        return InvalidSharedMemory(
            f"the shared memory object {shortened(self.key)} of region {shortened(self.name)} has "
            "become smaller than the region; unregister it and register what there is"
        )


class Regions:
    """The registered regions, by name; to be changed on the event loop alone."""

    def __init__(self, is_allowed: bool, rooms: Rooms) -> None:
        self.is_allowed = is_allowed
        self._rooms = rooms
        self._regions: dict[str, Region] = {}

    @property
    def bytes(self) -> int:
        """What all regions have together."""
        return sum(region.size for region in self._regions.values())

    def register(self, name: str, key: str, offset: int, size: int) -> None:
        """Registers part of a shared memory object; raises InvalidSharedMemory."""
        if name in self._regions:
            message = f"the shared memory region {shortened(name)} is registered already"
            raise InvalidSharedMemory(f"{message}; unregister it first")
        if len(self._regions) >= MAX_REGIONS:
            message = f"there are {MAX_REGIONS} shared memory regions, which is the most there can"
            raise InvalidSharedMemory(f"{message} be; unregister some")
        region = Region(name, key, offset, size, _opened(key), self._rooms)
        weakref.finalize(region, os.close, region.descriptor)
        there = os.fstat(region.descriptor).st_size
        if offset + size > there:
            raise InvalidSharedMemory(
                f"the shared memory object {shortened(key)} has {there:,} bytes, but the region "
                f"would end at {offset + size:,}; make it larger, or the region smaller"
            )
        self._regions[name] = region

    def unregister(self, name: str | None) -> None:
        """Forgets a region, or all of them; one that is not there is no error."""
        for known in [*self._regions] if name is None else [name]:
            self._regions.pop(known, None)

    def listed(self, name: str | None) -> list[Region]:
        """A region, or all of them; raises NotFound."""
        if name is None:
            return list(self._regions.values())
        if name not in self._regions:
            raise NotFound(f"no shared memory region {shortened(name)} is registered")
        return [self._regions[name]]

    def region(self, name: str) -> Region:
        """The region that a tensor names; raises InvalidSharedMemory."""
        if not self.is_allowed:
            raise InvalidSharedMemory(how_to_allow())
        region = self._regions.get(name)
        if region is None:
            message = f"no shared memory region {shortened(name)} is registered; register it first"
            raise InvalidSharedMemory(message)
        return region


def how_to_allow() -> str:
    """What to say where shared memory is switched off."""
    setting = "allow_shared_memory"
    return (
        "shared memory is switched off; whoever runs the server can allow it with "
        f"{flag(setting)} or {variable(setting)}=true"
    )


def _opened(key: str) -> int:
    """A descriptor of the shared memory object of this key."""
    name = key.removeprefix("/")
    long = len(name.encode(errors="replace")) > MAX_NAME_BYTES
    if not name or name in (".", "..") or long or "/" in name or "\0" in name:
        raise InvalidSharedMemory(
            f"the key {shortened(key)} should name a POSIX shared memory object: a slash and a "
            f"name of at most {MAX_NAME_BYTES} bytes without a slash"
        )
    # No link is followed out of the directory, and a pipe in it is not waited for.
    way = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        descriptor = os.open(DIRECTORY / name, way)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a name"
        raise InvalidSharedMemory(
            f"the shared memory object {shortened(key)} cannot be opened to be read and written: "
            f"{reason}"
        ) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InvalidSharedMemory(f"{shortened(key)} is not a shared memory object")
    return descriptor
