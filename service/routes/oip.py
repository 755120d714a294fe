"""The Open Inference Protocol's inference: a mapping is a model."""

import time
from typing import Any

from fastapi import APIRouter, Request, Response

from mappings.errors import ProbmapError
from service.body import UnreadBody
from service.documentation import problems
from service.routes.direct import DirectRoute
from service.routes.evaluate import FAILURES, evaluate
from service.routes.oip_models import model_of
from service.runtime import runtime_of
from service.wire.oip_decode import LOGITS
from service.wire.oip_encode import VERSION
from service.wire.oip_exchange import OipExchange
from service.wire.oip_header import HEADER

router = APIRouter(tags=["open inference protocol"], route_class=DirectRoute)

EXAMPLE = {
    "inputs": [{"name": LOGITS, "datatype": "FP32", "shape": [1, 3], "data": [0, 0.25, 0.5]}],
    "outputs": [{"name": "probabilities"}],
    "parameters": {"temperature": 0.5},
}

REQUEST: dict[str, Any] = {
    "parameters": [
        {
            "name": HEADER,
            "in": "header",
            "description": "How many bytes of the body are JSON, where tensors follow it; 0 where "
            "the body is one row of FP32 and nothing else.",
            "schema": {"type": "integer", "minimum": 0},
        }
    ],
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"type": "object"}, "example": EXAMPLE},
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        },
    },
}


@router.post("/v2/models/{name}/infer", responses=problems(*FAILURES), openapi_extra=REQUEST)
@router.post(
    "/v2/models/{name}/versions/{version}/infer",
    responses=problems(*FAILURES),
    openapi_extra=REQUEST,
)
async def infer(request: Request, name: str, version: str = VERSION) -> Response:
    """Maps every row of logits to a probability distribution."""
    runtime = runtime_of(request)
    try:
        mapping = model_of(name, version)
    except ProbmapError as error:
        raise UnreadBody(error) from None
    lengths = request.headers.getlist(HEADER)
    exchange = OipExchange(mapping, lengths, runtime.settings, runtime.regions)
    try:
        return await evaluate(request, exchange)
    finally:
        if not exchange.is_read:
            runtime.statistics.count_failure(name, time.monotonic() - request.state.arrived)
