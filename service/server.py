"""Runs the server: the application under uvicorn, with a banner that says where it is."""

import signal
import socket
import sys

import uvicorn
from rich.console import Console

from mappings.registry import MAPPINGS
from service.app import create_app
from service.engine.engine import devices
from service.logs import configure
from service.settings import Settings
from service.version import release

SWITCH_SECONDS = 0.001
"""How long a thread may hold the interpreter when another waits (seconds); with Python's own
5 ms a few busy threads would make the event loop wait too long."""


class Server(uvicorn.Server):
    """A uvicorn server that says where it listens once it does."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts listening, then prints the banner."""
        try:
            await super().startup(sockets)
        except SystemExit:
            # uvicorn has said why it cannot listen; this says what to do.
            sys.stderr.write("probmap serve: --port (or PROBMAP_PORT) takes another port\n")
            raise
        if self.started and self.servers:
            host, port, *_ = self.servers[0].sockets[0].getsockname()
            print_banner(f"http://{f'[{host}]' if ':' in host else host}:{port}", self.device)

    device: str = ""


def serve(settings: Settings) -> int:
    """Serves until told to stop; returns the process's exit code.

    Raises:
        ValueError: a chosen device is not there.
    """
    chosen = devices(settings.device)
    configure(settings)
    sys.setswitchinterval(SWITCH_SECONDS)
    config = uvicorn.Config(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http="httptools",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=settings.keep_alive_seconds,
        timeout_graceful_shutdown=settings.grace_seconds,
    )
    server = Server(config)
    server.device = ", ".join(map(str, chosen))
    # uvicorn raises the signal that stopped it once more: to have stopped as told is no failure.
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGINT, _leave)
    server.run()
    return 0 if server.started else 1


def print_banner(address: str, device: str) -> None:
    """Says what runs and where."""
    lines = {
        "address": address,
        "docs": f"{address}/docs",
        "playground": f"{address}/ (tries requests in the browser)",
        "device": device,
        "mappings": f"{len(MAPPINGS)}, listed at {address}/v1/mappings",
        "try": f"curl {address}/v1/map -H 'Content-Type: application/json'"
        ' -d \'{"logits": [0, 0.25, 0.5], "mapping": "sparsemax"}\'',
    }
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"[bold]probmap {release()}[/bold]")
    for name, value in lines.items():
        console.print(f"  [dim]{name:<10}[/dim] ", end="")
        console.print(value, markup=False)


def _leave(number: int, frame: object) -> None:
    sys.exit(0)
