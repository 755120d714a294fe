"""Bare ASGI servers to hold the server against: the same bytes through uvicorn, and nothing else.

    python benchmarks/bare_server.py DESCRIPTOR [asgi | starlette]

DESCRIPTOR is a socket that listens, inherited. `/echo` sends a body back, `/read` reads it and
says how long it was; under Starlette there is only `/echo`. The event loop, the parser and the
settings are those of `probmap serve`.
"""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

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


async def echo(request: Request) -> Response:
    """Sends a body back; who leaves meanwhile gets nothing."""
    try:
        body = await request.body()
    except ClientDisconnect:
        return Response(status_code=499)
    return Response(body, media_type="application/octet-stream")


APPS: dict[str, Any] = {
    "asgi": app,
    "starlette": Starlette(routes=[Route("/echo", echo, methods=["POST"])]),
}


def serve(descriptor: int, name: str = "asgi") -> None:
    """Serves one of the applications on a socket that listens already."""
    sys.setswitchinterval(SWITCH_SECONDS)
    config = uvicorn.Config(
        APPS[name],
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
def bare_server(family: socket.AddressFamily, address: Any, name: str = "asgi") -> Iterator[Any]:
    """A process that serves an application on a socket of this family; gives its address."""
    with socket.socket(family) as listening:
        listening.bind(address)
        listening.listen()
        descriptor = listening.fileno()
        command = [sys.executable, __file__, str(descriptor), name]
        process = subprocess.Popen(command, pass_fds=[descriptor])
        try:
            yield listening.getsockname()
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    serve(int(sys.argv[1]), *sys.argv[2:])
