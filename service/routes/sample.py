"""POST /v1/sample: tokens drawn from the distributions."""

from fastapi import APIRouter, Request, Response

from schemas.answer import SampleAnswer
from schemas.request import SampleBody, SampleRequest
from service.documentation import answers, bodies
from service.routes.direct import DirectRoute
from service.routes.evaluate import FAILURES, evaluate_as

router = APIRouter(tags=["distributions"], route_class=DirectRoute)

EXAMPLE = {
    "logits": [[0, 0.25, 0.5], [1, None, 3]],
    "mapping": "softmax",
    "processors": [{"name": "top_k", "k": 2}],
    "samples": 5,
    "seed": 7,
}


@router.post(
    "/v1/sample",
    response_model=SampleAnswer,
    responses=answers(*FAILURES),
    openapi_extra=bodies(SampleBody, EXAMPLE),
)
async def sample_tokens(request: Request) -> Response:
    """Draws tokens from the distribution of every row, reproducibly from a seed."""
    return await evaluate_as(request, SampleRequest)
