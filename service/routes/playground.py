"""GET /: the playground, a page that shows what mappings do, from this server's own answers."""

import asyncio

from fastapi import APIRouter, Request, Response

from service.errors import NotFound
from service.response_headers import CONTENT_POLICY
from service.static_files import (
    StaticFile,
    edition,
    playground,
    plotly,
    plotly_style_ids,
    plotly_version,
)

router = APIRouter(include_in_schema=False)

EMPTY = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
"""The hash of nothing: plotly's heat maps set a style attribute to the empty text."""

# The parts of plotly in use need no eval, its rules go into a style sheet of ours, and heat maps
# are pictures made on the page.
POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        f"style-src-attr 'unsafe-hashes' {EMPTY}",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)

_PRESENT = '<template id="{}"></template>'

FOR_EVER = "public, max-age=31536000, immutable"
ASK_AGAIN = "no-cache"


@router.get("/")
async def page(request: Request) -> Response:
    """The page, which names its files by their edition."""
    if request.scope["path"] != "/":
        # The router takes a line break behind the path for its end.
        raise NotFound("nothing is at this path; /docs lists what there is")
    return await asyncio.to_thread(_page, request)


@router.get("/playground/{version}/{path:path}")
async def file(request: Request, version: str, path: str) -> Response:
    """One of the page's files, or plotly's; one of another edition is not kept by browsers."""
    if version == f"plotly-{plotly_version()}" and path == "plotly.min.js":
        return await asyncio.to_thread(lambda: _answer(request, plotly(), FOR_EVER))
    if path not in playground():
        raise NotFound("there is no such file; the playground is at /")
    return _answer(request, playground()[path], FOR_EVER if version == edition() else ASK_AGAIN)


def _page(request: Request) -> Response:
    root = request.scope.get("root_path", "")
    source = playground()["index.html"]
    text = (
        source.content.decode()
        .replace("ASSETS/", f"{root}/playground/{edition()}/")
        .replace("PLOTLY", f"{root}/playground/plotly-{plotly_version()}/plotly.min.js")
        .replace("ROOT/", f"{root}/")
        .replace("<!-- STYLES -->", "".join(map(_PRESENT.format, plotly_style_ids())))
    )
    return _answer(request, StaticFile(text.encode(), source.media_type), ASK_AGAIN)


def _answer(request: Request, static: StaticFile, caching: str) -> Response:
    is_gzipped = _takes_gzip(request.headers.get("accept-encoding", ""))
    tag = f'"{static.digest}{"-gzip" if is_gzipped else ""}"'
    headers = {
        CONTENT_POLICY.decode(): POLICY,
        "cache-control": caching,
        "etag": tag,
        "vary": "accept-encoding",
    }
    known = request.headers.get("if-none-match", "").split(",")
    if tag in (one.strip().removeprefix("W/") for one in known):
        return Response(status_code=304, headers=headers)
    if is_gzipped:
        headers["content-encoding"] = "gzip"
    body = static.gzipped if is_gzipped else static.content
    return Response(body, media_type=static.media_type, headers=headers)


def _takes_gzip(header: str) -> bool:
    entries = (entry.partition(";") for entry in header.lower().split(","))
    return any(
        name.strip() == "gzip" and weight.replace(" ", "") not in ("q=0", "q=0.0")
        for name, _, weight in entries
    )
