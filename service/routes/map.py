"""POST /v1/map: logits to distributions."""

from fastapi import APIRouter, Request, Response

from schemas.answer import MapAnswer
from schemas.request import MapBody, MapRequest
from service.documentation import answers, bodies
from service.routes.direct import DirectRoute
from service.routes.evaluate import FAILURES, evaluate_as

router = APIRouter(tags=["distributions"], route_class=DirectRoute)

EXAMPLE = {
    "logits": [[0, 0.25, 0.5], [1, None, 3]],
    "mapping": {"name": "entmax", "alpha": [1.5, 2], "temperature": 0.7},
    "outputs": ["probabilities", "support"],
}


@router.post(
    "/v1/map",
    response_model=MapAnswer,
    responses=answers(*FAILURES),
    openapi_extra=bodies(MapBody, EXAMPLE),
)
async def map_logits(request: Request) -> Response:
    """Maps every row of logits to a probability distribution."""
    return await evaluate_as(request, MapRequest)
