"""Bare ASGI servers to hold the server against: the same bytes through uvicorn, and nothing else.

    python benchmarks/bare_server.py DESCRIPTOR

DESCRIPTOR is a socket that listens, inherited. `/echo` sends a body back, `/read` reads it and
says how long it was. The event loop, the parser and the settings are those of `probmap serve`.
"""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from service.server import SWITCH_SECONDS
from service.settings import Settings


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Reads a body into one buffer; sends it back, or its length."""
    body, more = bytearray(), True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    answer = body if scope["path"] == "/echo" else b"%d" % len(body)
    headers = [
        (b"content-type", b"application/octet-stream"),
        (b"content-length", b"%d" % len(answer)),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


def serve(descriptor: int) -> None:
    """Serves on a socket that listens already."""
    sys.setswitchinterval(SWITCH_SECONDS)
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http="httptools",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=Settings().keep_alive_seconds,
    )
    listening = socket.socket(fileno=descriptor)
    uvicorn.Server(config).run(sockets=[listening])


@contextmanager
def bare_server(family: socket.AddressFamily, address: Any) -> Iterator[Any]:
    """A process that serves on a socket of this family; gives its address."""
    with socket.socket(family) as listening:
        listening.bind(address)
        listening.listen()
        descriptor = listening.fileno()
        command = [sys.executable, __file__, str(descriptor)]
        process = subprocess.Popen(command, pass_fds=[descriptor])
        try:
            yield listening.getsockname()
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
