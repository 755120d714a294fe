"""The keys that callers may show: those of the settings, and those of a file that may change."""

import hashlib
import hmac
import logging
import os
import time
from collections.abc import Iterable

from pydantic import SecretStr

from service.settings import KEY_RULE, Settings, flag, is_key

LOOK_SECONDS = 1.0
"""How often, at most, the file of keys is looked at (seconds)."""

log = logging.getLogger("probmap.security")


class Keys:
    """The keys that are valid now; of each, only a digest is kept.

    Raises:
        ValueError: the file holds no key, or something that is none.
        OSError: the file cannot be read.
    """

    def __init__(self, settings: Settings) -> None:
        self._given = digests(settings.api_key)
        self._file = None if settings.api_key_file is None else KeyFile(settings.api_key_file)

    def holds(self, key: bytes) -> bool:
        """Whether this is one of the keys, in a time that does not tell how close it is to one."""
        of_file = () if self._file is None else self._file.digests()
        digest = hashlib.sha256(key).digest()
        is_known = False
        # Every key is compared, also behind the one that is equal.
        for known in (*self._given, *of_file):
            is_known |= hmac.compare_digest(known, digest)
        return is_known


class KeyFile:
    """A file of keys, one a line, that is read again when it changes.

    Lines that are empty or begin with # are none. A file that cannot be read any more, or holds
    something else than keys, leaves them as they were; an emptied one leaves none.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen = _state(path)
        self._digests = self._read()
        if not self._digests:
            raise ValueError(f"{path} holds no key; {flag('api_key_file')} takes one a line")
        self._look_at = time.monotonic() + LOOK_SECONDS

    def digests(self) -> tuple[bytes, ...]:
        """The keys' digests, as the file was at most a second ago."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            self._look()
        return self._digests

    def _look(self) -> None:
        try:
            state = _state(self._path)
            if state == self._seen:
                return
            self._digests, self._seen = self._read(), state
            log.info("%s has changed: %d keys are valid now", self._path, len(self._digests))
        except (OSError, ValueError) as error:
            log.error(
                "the keys stay as they were, because %s cannot be read: %s", self._path, error
            )

    def _read(self) -> tuple[bytes, ...]:
        keys = []
        with open(self._path, encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(map(str.strip, file), 1):
                if not line or line.startswith("#"):
                    continue
                if not is_key(line):
                    # The line itself may be most of a key.
                    raise ValueError(f"line {number} of {self._path} is no key: {KEY_RULE}")
                keys.append(SecretStr(line))
        return digests(keys)


def _state(path: str) -> tuple[int, int, int]:
    """What differs once a file has been written or replaced."""
    status = os.stat(path)
    return status.st_ino, status.st_size, status.st_mtime_ns


def digests(keys: Iterable[SecretStr]) -> tuple[bytes, ...]:
    """What is kept of keys."""
    return tuple(hashlib.sha256(key.get_secret_value().encode()).digest() for key in keys)
