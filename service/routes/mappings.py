"""GET /v1/mappings: what there is to choose from, read from the registry."""

from fastapi import APIRouter, Response

from mappings.registry import MAPPINGS, registered
from schemas.description import MappingDescription, MappingList, describe, describe_all
from service.documentation import problems
from service.responses import json_response

router = APIRouter(tags=["mappings"])


@router.get("/v1/mappings", response_model=MappingList)
async def list_mappings() -> Response:
    """Lists every mapping, its properties and its parameters."""
    return json_response(describe_all().model_dump())


@router.get("/v1/mappings/{name}", response_model=MappingDescription, responses=problems(404))
async def show_mapping(name: str) -> Response:
    """Shows one mapping, its properties and its parameters."""
    return json_response(describe(registered(MAPPINGS, name)).model_dump())
