"""Whether the server in this container is ready: exits 0 if it is, else 1.

It looks where the PROBMAP_* variables say; flags of `probmap serve` it does not know.
"""

import http.client
import os
import socket
import ssl
import sys

TIMEOUT_SECONDS = 4.0
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Where to ask a server that listens on every interface."""


def _address() -> tuple[socket.AddressFamily, str | tuple[str, int]]:
    path = os.environ.get("PROBMAP_UDS")
    if path:
        return socket.AF_UNIX, path
    host = os.environ.get("PROBMAP_HOST", "127.0.0.1")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return family, (EVERYWHERE.get(host, host), int(os.environ.get("PROBMAP_PORT", "8000")))


def status() -> int:
    """The status of the server's answer to whether it is ready."""
    family, address = _address()
    asking = socket.socket(family, socket.SOCK_STREAM)
    asking.settimeout(TIMEOUT_SECONDS)
    asking.connect(address)
    # The Unix socket speaks HTTP alone.
    if family != socket.AF_UNIX and os.environ.get("PROBMAP_TLS_CERT"):
        # It asks itself: whose certificate it is, is for its callers to judge.
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        asking = context.wrap_socket(asking)
    connection = http.client.HTTPConnection("localhost", timeout=TIMEOUT_SECONDS)
    connection.sock = asking
    connection.request("GET", "/v2/health/ready")
    return connection.getresponse().status


if __name__ == "__main__":
    try:
        sys.exit(status() != 200)
    except (OSError, http.client.HTTPException) as error:
        sys.exit(f"no answer: {error}")
