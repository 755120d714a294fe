"""A parser that stays with HTTP/1.1 when a client offers another protocol."""

from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HOP_BY_HOP = (b"upgrade", b"http2-settings")
"""Headers, and words of `Connection`, that offer another protocol."""


class PlainParser:
    """A parser of httptools that takes up no offer but that of a WebSocket.

    `Upgrade: h2c`, which Java's client sends by itself, may be ignored (RFC 9110, 7.8). httptools
    ends such a request at its header, whatever body follows: here it is read once more without
    the offer. That of a WebSocket is left to uvicorn.
    """

    def __init__(self, connection: HttpToolsProtocol) -> None:
        self._connection = connection
        self._parser = httptools.HttpRequestParser(connection)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)

    @property
    def is_offered_another(self) -> bool:
        """Whether the request offers to go on in a protocol that is not spoken here."""
        return bool(self._parser.should_upgrade()) and not self._connection._should_upgrade()

    def feed_data(self, data: bytes) -> None:
        """Reads on.

        Raises:
            httptools.HttpParserError: it is no HTTP/1.1.
            httptools.HttpParserUpgrade: a WebSocket begins.
        """
        while True:
            try:
                self._parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                if not self.is_offered_another:
                    raise
                data = self._plain_header() + data[upgrade.args[0] :]
                self._parser = httptools.HttpRequestParser(self._connection)

    def _plain_header(self) -> bytes:
        """The request's header without its offer."""
        version = self._parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b\r\n" % (self._parser.get_method(), self._connection.url, version)]
        for name, value in self._connection.headers:
            if name == b"connection":
                tokens = [token.strip() for token in value.split(b",")]
                value = b", ".join(token for token in tokens if token.lower() not in HOP_BY_HOP)
            if name not in HOP_BY_HOP:
                lines.append(b"%b: %b\r\n" % (name, value))
        return b"".join(lines) + b"\r\n"
