"""Whether the server lives, and whether it takes requests."""

from fastapi import APIRouter, Request, Response

from service.documentation import problems
from service.errors import NotReady
from service.responses import json_response
from service.runtime import runtime_of

router = APIRouter(tags=["health"])


@router.get("/health")
@router.get("/v2/health/live", responses=problems(503))
async def live(request: Request) -> Response:
    """Answers 200 as long as the server lives, 503 when only a new process can help."""
    if runtime_of(request).engine.is_beyond_repair:
        raise NotReady("the server has lost a worker and must be started anew", None)
    return json_response({"live": True})


@router.get("/v2/health/ready", responses=problems(503))
async def ready(request: Request) -> Response:
    """Answers 200 when requests will be computed, else 503."""
    if not runtime_of(request).engine.is_ready:
        raise NotReady("the server is not ready; try again in a moment")
    return json_response({"ready": True})
