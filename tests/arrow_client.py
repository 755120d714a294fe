"""A client of /v1/stream that writes and reads Arrow at the same time, over a socket of its own."""

import http.client
from typing import Any, Self

import numpy as np
import pyarrow as pa

from server import RunningServer

ARROW = "application/vnd.apache.arrow.stream"
SECONDS = 120


class ArrowClient:
    """One stream, whose body is sent in chunks; what pyarrow writes to it is one chunk a call."""

    closed = False

    def __init__(self, server: RunningServer, query: str = "", **headers: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=SECONDS)
        self._target = f"/v1/stream{query}"
        self._headers = {"Content-Type": ARROW, "Transfer-Encoding": "chunked"} | headers

    def __enter__(self) -> Self:
        self._connection.putrequest("POST", self._target)
        for name, value in self._headers.items():
            self._connection.putheader(name, value)
        self._connection.endheaders()
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def write(self, data: Any) -> int:
        """Sends part of the body as it is."""
        part = bytes(data)
        if part:
            self._connection.send(b"%x\r\n%b\r\n" % (len(part), part))
        return len(part)

    def flush(self) -> None:
        """Every write is sent at once."""

    def end(self) -> None:
        """Ends the body."""
        self._connection.send(b"0\r\n\r\n")

    def leave(self) -> None:
        """Breaks the connection off."""
        if self._connection.sock is not None:
            self._connection.sock.close()
        self._connection.close()

    def answer(self) -> http.client.HTTPResponse:
        """The answer's head, once it has come; its body is still to be read."""
        return self._connection.getresponse()


def stream_of(schema: Any, *batches: Any) -> bytes:
    """A whole stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def fixed(rows: Any, kind: Any) -> Any:
    """Rows of one length as a column of fixed-size lists."""
    array = np.asarray(rows)
    values = pa.array(array.reshape(-1).astype(kind.to_pandas_dtype()))
    return pa.FixedSizeListArray.from_arrays(values, array.shape[1])


def ragged(rows: Any, kind: Any) -> Any:
    """Rows of one length as a column of lists of any length."""
    return fixed(rows, kind).cast(pa.list_(kind))


def table_of(content: bytes) -> Any:
    """The table in a whole answer, which must end as a stream does."""
    assert content.endswith(b"\xff\xff\xff\xff\0\0\0\0")
    table = pa.ipc.open_stream(content).read_all()
    table.validate(full=True)
    return table
