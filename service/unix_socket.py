"""A Unix socket to listen on, and the file that stands for it."""

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

MODE = 0o660
"""Who may connect: the owner of the file and its group."""

PROBE_SECONDS = 1.0
"""How long a server that may still listen gets to answer (seconds)."""


@contextmanager
def unix_socket(path: str) -> Iterator[socket.socket]:
    """A socket bound to a path, whose file is there as long as the socket is.

    The file of a server that ended without removing it is replaced.

    Args:
        path: of the file, in a folder that is there.

    Raises:
        ValueError: the path is too long, or taken by a server or by something else.
        OSError: the file cannot be made.
    """
    _clear(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as bound:
        try:
            bound.bind(path)
        except OSError as error:
            if error.errno is None:
                raise ValueError(f"{path}: {error}; --uds takes a shorter path") from None
            raise OSError(error.errno, error.strerror, path) from None
        # Nobody can connect before the socket listens, so there is no moment of another mode.
        os.chmod(path, MODE)
        made = os.lstat(path)
        try:
            yield bound
        finally:
            with suppress(FileNotFoundError):
                if os.path.samestat(os.lstat(path), made):
                    os.unlink(path)


def _clear(path: str) -> None:
    """Removes a socket's file at which nobody listens any more."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ValueError(f"{path} is there and is no socket; --uds takes another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_SECONDS)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except (BlockingIOError, TimeoutError):
            # It listens, and has more to do than it can take.
            pass
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from None
    raise ValueError(f"another server listens at {path}; --uds takes another path")
