"""GET /v1/processors: the steps there are to choose from, read from the registry."""

from fastapi import APIRouter, Response

from mappings.registry import PROCESSORS, registered
from schemas.description import (
    ProcessorDescription,
    ProcessorList,
    describe_all_processors,
    describe_processor,
)
from service.documentation import problems
from service.responses import json_response

router = APIRouter(tags=["processors"])


@router.get("/v1/processors", response_model=ProcessorList)
async def list_processors() -> Response:
    """Lists every logits processor and its parameters."""
    return json_response(describe_all_processors().model_dump())


@router.get("/v1/processors/{name}", response_model=ProcessorDescription, responses=problems(404))
async def show_processor(name: str) -> Response:
    """Shows one logits processor and its parameters."""
    return json_response(describe_processor(registered(PROCESSORS, name)).model_dump())
