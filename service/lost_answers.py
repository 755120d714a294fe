"""What a proxy of Ray Serve answers when the replica that had a request is lost.

Ray Serve calls `middlewares` where RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH names it.
"""

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import NotReady
from service.middleware import taken_or_made
from service.responses import error_response

LOST = "the replica that had this request was lost; ask again"


class LostAnswers:
    """Answers 503 with Retry-After where there would be none, which servers make a bare 500.

    Answers do not depend on the replica, so a request may be sent again.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on."""
        has_begun = False

        async def send_noted(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        await self.app(scope, receive, send_noted)
        if scope["type"] == "http" and not has_begun:
            request_id = taken_or_made(Headers(scope=scope).get("x-request-id", ""))
            await error_response(NotReady(LOST), request_id)(scope, receive, send)


def middlewares() -> list[Middleware]:
    """What surrounds every request in a proxy."""
    return [Middleware(LostAnswers)]
