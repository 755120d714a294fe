"""How both clients reach the server: address, headers, time, and the pool of connections."""

import ssl
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import httpx

from probmap_client.call import Server
from probmap_client.retries import Retries

LOCAL = "http://localhost"
"""The address of requests on a Unix socket, where no name is looked up."""

IDLE_SECONDS = 60.0
"""Time after which an idle connection is closed (seconds); the server's own is longer."""

H = TypeVar("H", httpx.Client, httpx.AsyncClient)


class Connection(Generic[H]):
    """A server's address and a pool of connections to it, which is safe to share.

    Args:
        url: where the server is, such as "http://127.0.0.1:8000"; a path goes before its own.
        api_key: sent as `Authorization: Bearer …`.
        timeout: for an answer, all tries together (seconds); math.inf: no limit. The server is
            told, and does not begin what would come too late.
        retries: when to try again.
        connections: how many to open at most (a count); they stay open for the next call.
        uds: the path of the Unix socket to connect to.
        verify: whose certificates to trust: True, those of certifi; or a context of ssl.
        headers: of every request.
    """

    _pool: Callable[..., H]
    _transport: Callable[..., httpx.BaseTransport | httpx.AsyncBaseTransport]

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        timeout: float = 60.0,
        retries: Retries | None = None,
        connections: int = 64,
        uds: str | None = None,
        verify: ssl.SSLContext | bool = True,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        if url is None and uds is None:
            raise ValueError('there is no address; give a url, such as "http://127.0.0.1:8000"')
        address = _address(LOCAL if url is None else url)
        if not timeout > 0:
            raise ValueError(f"timeout is {timeout}; give seconds above 0, or math.inf")
        sent = {"User-Agent": "probmap-client", **(headers or {})}
        if api_key is not None:
            sent["Authorization"] = f"Bearer {api_key}"
        limits = httpx.Limits(
            max_connections=connections,
            max_keepalive_connections=connections,
            keepalive_expiry=IDLE_SECONDS,
        )
        transport = None if uds is None else self._transport(uds=uds, limits=limits)
        self._server = Server(address, timeout, retries or Retries(), sent)
        self._http: H = self._pool(transport=transport, limits=limits, verify=verify)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._server.url}>"


def _address(url: str) -> httpx.URL:
    try:
        address = httpx.URL(url)
    except httpx.InvalidURL:
        address = httpx.URL()
    if address.scheme not in ("http", "https") or not address.host:
        raise ValueError(f'{url!r} is no address; give one such as "http://127.0.0.1:8000"')
    return address
