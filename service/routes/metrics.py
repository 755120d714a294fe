"""GET /metrics: for Prometheus."""

import asyncio

from fastapi import APIRouter, Request, Response
from prometheus_client.exposition import choose_encoder

from service.runtime import runtime_of

router = APIRouter(tags=["health"])


@router.get("/metrics", response_class=Response)
async def metrics(request: Request) -> Response:
    """Shows every metric, in the format that the collector prefers."""
    encode, media_type = choose_encoder(request.headers.get("accept", ""))
    # Files of /proc are read, and hundreds of lines written: not on the event loop.
    text = await asyncio.to_thread(encode, runtime_of(request).metrics.registry)
    return Response(text, media_type=media_type)
