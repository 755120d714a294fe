"""The Open Inference Protocol's system shared memory: regions that tensors are passed by."""

from fastapi import APIRouter, Depends, Request, Response

from service.documentation import problems
from service.errors import NotFound
from service.responses import json_response
from service.routes.oip_body import small_object
from service.runtime import runtime_of
from service.wire.oip_fields import count_at, only, text_at
from service.wire.shared_memory import how_to_allow


def check_allowed(request: Request) -> None:
    """Raises NotFound where shared memory is switched off."""
    if not runtime_of(request).regions.is_allowed:
        raise NotFound(how_to_allow())


router = APIRouter(
    prefix="/v2/systemsharedmemory",
    tags=["open inference protocol"],
    responses=problems(400, 404),
    dependencies=[Depends(check_allowed)],
)


@router.get("/status")
@router.get("/region/{name:path}/status")
async def show_regions(request: Request, name: str | None = None) -> Response:
    """Lists the registered regions, or shows one."""
    regions = runtime_of(request).regions.listed(name)
    shown = [
        {"name": one.name, "key": one.key, "offset": one.offset, "byte_size": one.size}
        for one in regions
    ]
    return json_response(shown)


@router.post("/region/{name:path}/register")
async def register_region(request: Request, name: str) -> Response:
    """Registers part of a POSIX shared memory object under a name."""
    fields = await small_object(request)
    only(fields, ("key", "offset", "byte_size"), ())
    key = text_at(fields.get("key"), ("key",))
    offset = count_at(fields.get("offset", 0), ("offset",))
    size = count_at(fields.get("byte_size"), ("byte_size",), least=1)
    runtime_of(request).regions.register(name, key, offset, size)
    return json_response({})


@router.post("/unregister")
@router.post("/region/{name:path}/unregister")
async def unregister_region(request: Request, name: str | None = None) -> Response:
    """Forgets a region, or all of them; the memory itself stays as it is."""
    runtime_of(request).regions.unregister(name)
    return json_response({})
