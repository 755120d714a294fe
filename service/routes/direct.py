"""Routes whose endpoints take the request as it is."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute


class DirectRoute(APIRoute):
    """A route whose endpoint takes the request and the path's parameters, and answers itself.

    FastAPI documents it as any other, but resolves and validates nothing for it, which would
    take longer than a small evaluation.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The endpoint, called with the request."""

        async def handler(request: Request) -> Response:
            response: Response = await self.endpoint(request, **request.path_params)
            return response

        return handler
