"""What a server says when it begins to listen."""

import shlex

from rich.console import Console

from mappings.registry import MAPPINGS
from service.version import release


def print_banner(address: str | None, path: str | None, device: str) -> None:
    """Says what runs and where.

    Args:
        address: of HTTP over TCP; None: there is none.
        path: of the Unix socket; None: there is none.
        device: what computes.
    """
    lines: dict[str, str] = {}
    if address is not None:
        lines |= {"address": address, "docs": f"{address}/docs"}
        lines["playground"] = f"{address}/ (tries requests in the browser)"
    base, over = address or "http://localhost", ""
    if path is not None:
        lines["socket"] = path
        over = "" if address else f"--unix-socket {shlex.quote(path)} "
    lines |= {
        "device": device,
        "mappings": f"{len(MAPPINGS)}, listed at {base}/v1/mappings",
        "try": f"curl {over}{base}/v1/map -H 'Content-Type: application/json'"
        ' -d \'{"logits": [0, 0.25, 0.5], "mapping": "sparsemax"}\'',
    }
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"[bold]probmap {release()}[/bold]")
    for name, value in lines.items():
        console.print(f"  [dim]{name:<10}[/dim] ", end="")
        console.print(value, markup=False)
