"""The playground's files and plotly's JavaScript, as they are sent: whole, compressed, tagged."""

import re
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from importlib.metadata import distribution
from pathlib import Path

from service.content_encoding import compressed
from service.wire.exchange import Encoded

STATIC = Path(__file__).parent / "static"

MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

PLOTLY = "plotly/package_data/plotly.min.js"
"""Where the package plotly keeps its JavaScript, the whole library in one file."""

OWN_STYLES = re.compile(rb'document\.getElementById\("([0-9a-f]{64})"\)')
"""How plotly asks whether the rules of its maps are on the page already, and adds them if not."""

TAG_DIGITS = 16


@dataclass(frozen=True)
class StaticFile:
    """A file that is sent to browsers."""

    content: bytes
    media_type: str

    @cached_property
    def digest(self) -> str:
        """What tells it from every other version of it."""
        return sha256(self.content).hexdigest()[:TAG_DIGITS]

    @cached_property
    def gzipped(self) -> bytes:
        """Itself, compressed."""
        parts = compressed(Encoded([self.content], self.media_type), "gzip").parts
        return b"".join(parts)


@cache
def playground() -> dict[str, StaticFile]:
    """The playground's own files, by their path under service/static."""
    found = sorted(path for path in STATIC.rglob("*") if path.suffix in MEDIA_TYPES)
    return {
        path.relative_to(STATIC).as_posix(): StaticFile(path.read_bytes(), MEDIA_TYPES[path.suffix])
        for path in found
    }


@cache
def edition() -> str:
    """What tells these files, all together, from every other version of them."""
    digests = "".join(f"{path} {file.digest}\n" for path, file in playground().items())
    return sha256(digests.encode()).hexdigest()[:TAG_DIGITS]


@cache
def plotly() -> StaticFile:
    """Plotly's JavaScript, without importing plotly."""
    path = Path(str(distribution("plotly").locate_file(PLOTLY)))
    return StaticFile(path.read_bytes(), MEDIA_TYPES[".js"])


@cache
def plotly_style_ids() -> list[str]:
    """The ids of style elements that plotly adds where nothing has such an id."""
    return sorted({found.decode() for found in OWN_STYLES.findall(plotly().content)})


@cache
def plotly_version() -> str:
    """The version of the package plotly."""
    return distribution("plotly").version
