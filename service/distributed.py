"""The application on Ray Serve: replicas on many machines, each of which owns its device."""

import asyncio
import sys

import ray
from fastapi import FastAPI
from ray import serve
from ray.serve import Application
from ray.serve.config import BackpressureConfig
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.app import create_app
from service.engine.devices import devices
from service.heap import keep_freed_memory
from service.logs import configure
from service.server import SWITCH_SECONDS
from service.settings import Settings
from service.tracing import check_installed

WARM_LOOK_SECONDS = 0.05
"""How often a new replica is looked at until it is warm (seconds)."""

SHUTDOWN_LOOK_SECONDS = 1.0
"""How often a replica that is told to stop looks whether it has answered all (seconds)."""

FULL = BackpressureConfig(status_code=429, retry_after_s=1)
"""What callers are told when all replicas are busy and the queue before them is full."""


class Carried:
    """Makes of every answer what Ray Serve can take to the proxy, another process.

    That is bytes, not views of a tensor's memory; and the proxy adds the request's id itself.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = (b"x-request-id", Headers(scope=scope).get("x-request-id", "").encode("latin-1"))

        async def send_carried(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [header for header in message["headers"] if header != given]
                message = {**message, "headers": headers}
            elif message["type"] == "http.response.body":
                message = {**message, "body": bytes(message.get("body", b""))}
            await send(message)

        await self.app(scope, receive, send_carried)


@serve.ingress()
class Replica:
    """One replica: the application of `probmap serve`, with an engine of its own."""

    def __init__(self, settings: Settings) -> None:
        keep_freed_memory()
        sys.setswitchinterval(SWITCH_SECONDS)
        configure(settings)
        check_installed(settings)
        devices(settings.device)
        self._application = create_app(settings)
        self._application.add_middleware(Carried)

    def __serve_build_asgi_app__(self) -> FastAPI:
        """What Ray Serve hands requests to, unbuffered; it begins and ends its lifespan too."""
        return self._application

    async def check_health(self) -> None:
        """Waits until the engine is warm, so that no request reaches a replica before.

        Raises:
            RuntimeError: a worker is lost for good; Ray Serve replaces the replica.
        """
        engine = self._application.state.runtime.engine
        while not (engine.is_beyond_repair or all(worker.is_warm for worker in engine.workers)):
            await asyncio.sleep(WARM_LOOK_SECONDS)
        if engine.is_beyond_repair:
            raise RuntimeError("a worker of this replica is lost, and was replaced once already")


def application(settings: Settings) -> Application:
    """The application that a configuration file of Ray Serve imports.

    Args:
        settings: those of `probmap serve`, as `args` of the file; what is not there comes from the
            environment. Where to listen, TLS and the bounds of connections are Ray Serve's.
    """
    replicas = serve.deployment(
        name="probmap",
        ray_actor_options={"num_cpus": 1, "num_gpus": _owned_gpus(settings.device)},
        max_ongoing_requests=128,
        max_queued_requests=512,
        backpressure_config=FULL,
        graceful_shutdown_wait_loop_s=SHUTDOWN_LOOK_SECONDS,
        graceful_shutdown_timeout_s=max(1, settings.grace_seconds),
        health_check_period_s=5,
        health_check_timeout_s=30,
    )(Replica)
    return replicas.bind(settings)


def _owned_gpus(device: str) -> int:
    """How many GPUs a replica needs for itself (a count)."""
    if device == "auto":
        return int("GPU" in ray.cluster_resources())
    return 0 if device == "cpu" else len(device.split(","))
