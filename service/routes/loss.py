"""POST /v1/loss: losses against targets, with their gradients."""

from fastapi import APIRouter, Request, Response

from schemas.answer import LossAnswer
from schemas.request import LossBody, LossRequest
from service.documentation import answers, bodies
from service.routes.direct import DirectRoute
from service.routes.evaluate import FAILURES, evaluate_as

router = APIRouter(tags=["distributions"], route_class=DirectRoute)

EXAMPLE = {
    "logits": [[0, 0.25, 0.5], [1, None, 3]],
    "mapping": "sparsemax",
    "targets": [2, 0],
}


@router.post(
    "/v1/loss",
    response_model=LossAnswer,
    responses=answers(*FAILURES),
    openapi_extra=bodies(LossBody, EXAMPLE),
)
async def compute_losses(request: Request) -> Response:
    """Computes the loss of every row against its target, and the gradient by its logits."""
    return await evaluate_as(request, LossRequest)
