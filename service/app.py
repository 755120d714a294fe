"""Assembles the application; nothing happens at import."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from mappings.errors import ProbmapError
from service.body import UnreadBody
from service.documentation import document
from service.head import HeadMiddleware
from service.middleware import RequestMiddleware
from service.responses import error_response
from service.routes import (
    docs,
    health,
    loss,
    map,
    mappings,
    metrics,
    oip,
    oip_models,
    oip_shared_memory,
    playground,
    processors,
    sample,
    socket,
    stream,
)
from service.runtime import Runtime
from service.security import allow_pages, protect
from service.settings import Settings
from service.version import release


def create_app(settings: Settings) -> FastAPI:
    """The application under these settings; its lifespan starts and ends its threads."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.runtime = Runtime(settings)
        app.state.runtime.start()
        yield
        app.state.has_ended = await app.state.runtime.close()

    app = FastAPI(
        title="probmap",
        version=release(),
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # Ours is service/telemetry.py and service/tracing.py; FastAPI's sends what errors say.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.state.has_ended = False
    # From the inside out: refusals are logged, and pages that may ask can read them.
    app.add_middleware(HeadMiddleware)
    protect(app, settings)
    app.add_middleware(RequestMiddleware)
    allow_pages(app, settings)
    for kind in (ProbmapError, UnreadBody, HTTPException):
        app.add_exception_handler(kind, _answer_error)
    evaluations = (map, sample, loss, stream, socket, oip)
    for route in (
        *evaluations,
        oip_models,
        oip_shared_memory,
        mappings,
        processors,
        health,
        metrics,
        docs,
        playground,
    ):
        # Side by side: an included router is looked into twice, for whatever is asked.
        app.router.routes.extend(route.router.routes)
    # FastAPI means the document to be replaced in this way.
    app.openapi = partial(document, app, settings)  # type: ignore[method-assign]
    return app


async def _answer_error(request: Request, error: Exception) -> Response:
    return error_response(error, request.state.request_id)
