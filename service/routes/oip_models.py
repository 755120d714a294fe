"""The Open Inference Protocol's server and models: metadata, readiness, configuration, counts."""

from fastapi import APIRouter, Request, Response

from mappings.base import Mapping
from mappings.registry import MAPPINGS, registered
from service.documentation import problems
from service.errors import NotFound, NotReady
from service.responses import json_response
from service.routes.oip_body import small_object
from service.runtime import runtime_of
from service.version import release
from service.wire.oip_encode import VERSION
from service.wire.oip_fields import flag_at, only
from service.wire.oip_models import configuration, metadata
from service.wire.oip_statistics import shown_statistics

router = APIRouter(tags=["open inference protocol"], responses=problems(404))

EXTENSIONS = (
    "binary_tensor_data",
    "classification",
    "parameters",
    "statistics",
    "model_configuration",
    "model_repository",
)
"""The extensions of the protocol that are there whatever the settings."""

SHARED_MEMORY = "system_shared_memory"


def model_of(name: str, version: str = VERSION) -> type[Mapping]:
    """The mapping that a path names; raises UnknownName or NotFound."""
    mapping = registered(MAPPINGS, name)
    if version != VERSION:
        raise NotFound(f"{name} has only the version {VERSION}")
    return mapping


@router.get("/v2")
async def server_metadata(request: Request) -> Response:
    """Tells the server's name, version and extensions."""
    shared = (SHARED_MEMORY,) if runtime_of(request).regions.is_allowed else ()
    extensions = [*EXTENSIONS, *shared]
    return json_response({"name": "probmap", "version": release(), "extensions": extensions})


@router.get("/v2/models/stats")
async def all_statistics(request: Request) -> Response:
    """Counts what was asked of every mapping since the start."""
    counted = runtime_of(request).statistics
    shown = [shown_statistics(name, counted.of(name)) for name in MAPPINGS]
    return json_response({"model_stats": shown})


@router.get("/v2/models/{name}")
@router.get("/v2/models/{name}/versions/{version}")
async def model_metadata(name: str, version: str = VERSION) -> Response:
    """Tells a mapping's inputs and outputs."""
    return json_response(metadata(model_of(name, version)))


@router.get("/v2/models/{name}/ready")
@router.get("/v2/models/{name}/versions/{version}/ready")
async def model_ready(request: Request, name: str, version: str = VERSION) -> Response:
    """Answers 200 when requests to a mapping will be computed."""
    model_of(name, version)
    if not runtime_of(request).engine.is_ready:
        raise NotReady("the server is not ready; try again in a moment")
    return json_response({"name": name, "ready": True})


@router.get("/v2/models/{name}/config")
@router.get("/v2/models/{name}/versions/{version}/config")
async def model_configuration(name: str, version: str = VERSION) -> Response:
    """Tells a mapping's configuration, its parameters and their bounds."""
    return json_response(configuration(model_of(name, version)))


@router.get("/v2/models/{name}/stats")
@router.get("/v2/models/{name}/versions/{version}/stats")
async def model_statistics(request: Request, name: str, version: str = VERSION) -> Response:
    """Counts what was asked of a mapping since the start."""
    model_of(name, version)
    shown = shown_statistics(name, runtime_of(request).statistics.of(name))
    return json_response({"model_stats": [shown]})


@router.post("/v2/repository/index")
async def repository_index(request: Request) -> Response:
    """Lists every mapping, and whether requests to it will be computed."""
    fields = await small_object(request)
    only(fields, ("ready", "repository_name"), ())
    is_ready = runtime_of(request).engine.is_ready
    if flag_at(fields.get("ready", False), ("ready",)) and not is_ready:
        return json_response([])
    state = "READY" if is_ready else "UNAVAILABLE"
    models = [{"name": name, "version": VERSION, "state": state, "reason": ""} for name in MAPPINGS]
    return json_response(models)
