"""The interactive documentation, with its assets served from here: no other site is needed."""

from importlib.resources import files
from pathlib import Path

from fastapi import APIRouter, Request, Response
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.responses import FileResponse

from service.errors import NotFound
from service.response_headers import page_policy

router = APIRouter(include_in_schema=False)

ASSETS = {
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
    "favicon.png": "image/png",
}


@router.get("/docs")
async def docs(request: Request) -> Response:
    """Shows the documentation."""
    root = request.scope.get("root_path", "")
    page = get_swagger_ui_html(
        openapi_url=f"{root}/openapi.json",
        title="probmap",
        swagger_js_url=f"{root}/docs/swagger-ui-bundle.js",
        swagger_css_url=f"{root}/docs/swagger-ui.css",
        swagger_favicon_url=f"{root}/docs/favicon.png",
        swagger_ui_parameters={"defaultModelsExpandDepth": 0, "tryItOutEnabled": True},
    )
    page.headers["content-security-policy"] = page_policy(bytes(page.body).decode()).decode()
    return page


@router.get("/docs/{asset}")
async def docs_asset(asset: str) -> Response:
    """One of the files of the documentation's page."""
    if asset not in ASSETS:
        raise NotFound("there is no such file")
    static = Path(str(files("fastapi_offline"))) / "static"
    return FileResponse(static / asset, media_type=ASSETS[asset])
