"""HEAD: as GET, without the body."""

from starlette.types import ASGIApp, Receive, Scope, Send

FOUND = ("route", "endpoint", "path_params")
"""What routing leaves in a scope."""


class HeadMiddleware:
    """Lets every route that answers GET answer HEAD; the server leaves the body out."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return
        # A copy: the server has to see HEAD, to send no body.
        inner = {**scope, "method": "GET"}
        try:
            await self.app(inner, receive, send)
        finally:
            scope.update({name: inner[name] for name in FOUND if name in inner})
