"""Runs the server: the application under uvicorn."""

import asyncio
import gc
import logging
import os
import resource
import signal
import socket
import sys
import time
from contextlib import nullcontext
from types import FrameType

import uvicorn
from fastapi import FastAPI

from service.app import create_app
from service.banner import print_banner
from service.connections import bounded
from service.engine.devices import devices
from service.logs import configure
from service.settings import Settings
from service.tls import tls_context
from service.tracing import check_installed
from service.unix_socket import unix_socket

SWITCH_SECONDS = 0.001
"""How long a thread may hold the interpreter when another waits (seconds); with Python's own
5 ms a few busy threads would make the event loop wait too long."""

log = logging.getLogger("probmap.server")

OTHER_FILES = 256
"""Files that are open beside connections (a count)."""

SENDING_SECONDS = 5
"""How long answers that are ready get to be sent when the server stops (seconds)."""


class Server(uvicorn.Server):
    """A uvicorn server that says where it listens, and finishes what it took before it stops.

    Told to stop, it goes on listening, answers that it is not ready, and stops as soon as every
    request it has let in is answered, or when the time for that is over.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        app: FastAPI,
        settings: Settings,
        unix: socket.socket | None = None,
    ) -> None:
        """Prepares the server.

        Args:
            config: uvicorn's.
            app: what is served.
            settings: where to listen, and how long to take.
            unix: a Unix socket to listen on as well.
        """
        super().__init__(config)
        self._app = app
        self._settings = settings
        self._unix = unix
        self._stop_at: float | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts listening, then prints the banner."""
        try:
            await super().startup([] if self._settings.no_tcp else sockets)
        except SystemExit:
            # uvicorn has said why it cannot listen; this says what to do.
            sys.stderr.write("probmap serve: --port (or PROBMAP_PORT) takes another port\n")
            raise
        if not self.started:
            return
        address = None
        if self.servers:
            host, port, *_ = self.servers[0].sockets[0].getsockname()
            scheme = "http" if self._settings.tls_cert is None else "https"
            address = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
        if self._unix is not None:
            loop = asyncio.get_running_loop()
            self.servers.append(
                await loop.create_unix_server(
                    self._protocol, sock=self._unix, backlog=self.config.backlog
                )
            )
        # What was imported stays: looked through for garbage again and again, it would hold every
        # request up for a tenth of a second, about once a second under load.
        gc.collect()
        gc.freeze()
        chosen = ", ".join(map(str, devices(self._settings.device)))
        print_banner(address, self._settings.uds, chosen)

    def _protocol(self) -> asyncio.Protocol:
        """What uvicorn answers one connection with."""
        return self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begins to stop at the first signal; stops at once at the second."""
        if self._stop_at is None and self.started:
            log.info("told to stop: finishing what was let in")
            self._stop_at = time.monotonic() + self._settings.grace_seconds
        else:
            super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        """Looks, ten times a second, whether to stop now."""
        if self._stop_at is None:
            return await super().on_tick(counter)
        runtime = self._app.state.runtime
        runtime.drain()
        if time.monotonic() >= self._stop_at:
            runtime.engine.abandon()
            return True
        return await super().on_tick(counter) or runtime.is_idle


def serve(settings: Settings) -> int:
    """Serves until told to stop; returns the process's exit code.

    Raises:
        ValueError: a chosen device or what sends traces is not there, there is nothing to listen
            on, or the Unix socket's path is taken.
        OSError: the Unix socket cannot be made.
        SystemExit: the port is taken or may not be; uvicorn has said so.
    """
    devices(settings.device)
    check_installed(settings)
    if settings.no_tcp and settings.uds is None:
        raise ValueError("--no-tcp leaves nothing to listen on; give a Unix socket with --uds")
    tls = tls_context(settings)
    configure(settings)
    _open_more_files(settings.max_connections)
    sys.setswitchinterval(SWITCH_SECONDS)
    app = create_app(settings)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http=bounded(settings),
        h11_max_incomplete_event_size=settings.max_header_bytes,
        ssl_context_factory=None if tls is None else lambda config, default: tls,
        ws="websockets-sansio",
        ws_max_size=settings.max_body_bytes,
        # Numbers hardly shrink; and what inflates has to be bounded.
        ws_per_message_deflate=False,
        # While a window is full nothing is read, pongs neither.
        ws_ping_timeout=settings.stream_idle_seconds,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=settings.keep_alive_seconds,
        timeout_graceful_shutdown=SENDING_SECONDS,
    )
    # uvicorn raises the signal that stopped it once more: to have stopped as told is no failure.
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGINT, _leave)
    with nullcontext() if settings.uds is None else unix_socket(settings.uds) as unix:
        server = Server(config, app, settings, unix)
        server.run()
    if server.started and not app.state.has_ended:
        # A worker is inside a computation that nothing can end but the end of the process.
        sys.stdout.flush()
        os._exit(0)
    return 0 if server.started else 1


def _open_more_files(connections: int) -> None:
    """Raises the count of files that the process may open to what the system allows it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if most < connections + OTHER_FILES:
        log.warning(
            "the system allows %d open files, too few for %d connections: raise the one (ulimit "
            "-n) or lower the other (--max-connections)",
            most,
            connections,
        )


def _leave(number: int, frame: object) -> None:
    sys.exit(0)
