"""Who may ask: keys on every path but the public ones, and no web page of another site."""

import time
from typing import Any
from urllib.parse import urlsplit

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mappings.errors import ProbmapError
from service.body import UnreadBody
from service.errors import STATUS, Forbidden, Unauthorized
from service.keys import Keys
from service.reports import report
from service.responses import ProblemResponse
from service.settings import Public, Settings, flag

PUBLIC: dict[Public, tuple[str, ...]] = {
    "live": ("/health", "/v2/health/live"),
    "ready": ("/v2/health/ready",),
    "metrics": ("/metrics",),
    "docs": ("/docs", "/docs/", "/openapi.json"),
    "playground": ("/", "/playground/"),
}
"""The paths of what can be open to everybody; one that ends in / has those below it as well."""

SAFE_METHODS = ("GET", "HEAD")

ALWAYS_READABLE = (
    "x-request-id",
    "server-timing",
    "retry-after",
    "inference-header-content-length",
)
"""Headers of answers that pages of other sites may read where they may ask."""

PREFLIGHT_SECONDS = 600
"""How long a browser need not ask again whether it may ask (seconds)."""

POLICY = 1008
"""The code that closes a WebSocket that is not allowed."""


def protect(app: FastAPI, settings: Settings) -> None:
    """Puts in front of an application what the settings ask for.

    Raises:
        ValueError: the file of keys holds none.
        OSError: the file of keys cannot be read.
    """
    keys = Keys(settings) if asks_for_keys(settings) else None
    app.add_middleware(Gate, settings=settings, keys=keys)


def asks_for_keys(settings: Settings) -> bool:
    """Whether callers must show a key."""
    return bool(settings.api_key) or settings.api_key_file is not None


def allow_pages(app: FastAPI, settings: Settings) -> None:
    """Lets pages of the origins in the settings ask; has to be put around everything else."""
    if settings.cors_origin:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origin,
            allow_methods=["GET", "HEAD", "POST"],
            allow_headers=["*"],
            expose_headers=ALWAYS_READABLE,
            max_age=PREFLIGHT_SECONDS,
        )


class Gate:
    """Refuses who shows no key where keys are asked for, and pages of other sites on WebSockets.

    Args:
        app: what lies behind.
        settings: what is public, and which pages may ask.
        keys: None: everything is open.
    """

    def __init__(self, app: ASGIApp, settings: Settings, keys: Keys | None) -> None:
        self.app = app
        self._keys = keys
        open_paths = [path for name in settings.public for path in PUBLIC[name]]
        self._open = frozenset(open_paths)
        self._open_below = tuple(path for path in open_paths if path.endswith("/") and path != "/")
        self._origins = settings.cors_origin

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, or refuses it."""
        refusal = self._refusal(scope)
        if refusal is None:
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            raise UnreadBody(refusal)
        else:
            await _deny(refusal, scope, receive, send)

    def _refusal(self, scope: Scope) -> ProbmapError | None:
        if scope["type"] == "lifespan":
            return None
        headers = Headers(scope=scope)
        # A browser sends a page's WebSocket anywhere, and asks nobody first.
        if scope["type"] == "websocket" and not self._may_connect(headers):
            return Forbidden(
                f"pages of other sites may not connect ({flag('cors_origin')} of the server "
                "names those that may)"
            )
        if self._keys is None or self._is_public(scope):
            return None
        shown = headers.getlist("authorization")
        scheme, _, key = (shown[0] if len(shown) == 1 else "").partition(" ")
        if scheme.lower() != "bearer":
            return Unauthorized(
                "this server asks for a key: send Authorization: Bearer and the key"
            )
        if not self._keys.holds(key.strip().encode("latin-1")):
            return Unauthorized("the key is not valid; ask whoever runs the server for one")
        return None

    def _is_public(self, scope: Scope) -> bool:
        if scope["type"] != "http" or scope["method"] not in SAFE_METHODS:
            return False
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        return path in self._open or path.startswith(self._open_below)

    def _may_connect(self, headers: Headers) -> bool:
        origin = headers.get("origin")
        if origin is None or origin in self._origins or "*" in self._origins:
            return True
        return urlsplit(origin).netloc == headers.get("host", "")


async def _deny(error: ProbmapError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answers the handshake of a WebSocket with an error."""
    request_id = scope["state"]["request_id"]
    if "websocket.http.response" in scope.get("extensions", {}):

        async def send_denial(message: Message) -> None:
            await send({**message, "type": f"websocket.{message['type']}"})

        await ProblemResponse(error, request_id)(scope, receive, send_denial)
    else:
        await send({"type": "websocket.close", "code": POLICY, "reason": error.code})
        scope["state"]["failure"] = error.code
    seconds = time.monotonic() - scope["state"]["arrived"]
    report({**scope, "method": "GET"}, STATUS[error.code], seconds)


def document_keys(document: dict[str, Any], settings: Settings) -> None:
    """Says in an OpenAPI document which operations ask for a key."""
    schemes = document["components"].setdefault("securitySchemes", {})
    schemes["key"] = {"type": "http", "scheme": "bearer"}
    document["security"] = [{"key": []}]
    for name in settings.public:
        for path in PUBLIC[name]:
            for operation in document["paths"].get(path, {}).values():
                operation["security"] = []
