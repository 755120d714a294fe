"""GET /v1/ws: a WebSocket for whoever asks step by step."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial

from fastapi import APIRouter, WebSocket
from starlette.requests import ClientDisconnect
from starlette.websockets import WebSocketDisconnect

from mappings.errors import ProbmapError
from service.errors import NotReady
from service.messages import next_message
from service.reports import report_socket
from service.runtime import Runtime
from service.stream import Arrived, Ending, Stream, StreamedExchange
from service.stream_query import check_query, is_in_order
from service.wire.jsonl import LineExchange, closing
from service.wire.socket_messages import MEDIA_TYPE, SocketExchange

router = APIRouter(tags=["streams"])

GOING_AWAY = 1001
POLICY = 1008


@router.websocket("/v1/ws")
async def talk(socket: WebSocket) -> None:
    """Answers messages: lines of JSON as text, Open Inference Protocol bodies as binary ones."""
    runtime: Runtime = socket.app.state.runtime
    request_id = socket.state.request_id
    await socket.accept(headers=[(b"x-request-id", request_id.encode())])
    try:
        check_query(socket.query_params)
        in_order = is_in_order(socket.query_params)
        permit = runtime.admission.enter()
    except ProbmapError as error:
        code = GOING_AWAY if isinstance(error, NotReady) else POLICY
        await socket.close(code, error.detail)
        report_socket(socket.scope, Ending(0, 0, error))
        return
    stream = Stream(runtime, request_id, in_order=in_order)
    reading = asyncio.ensure_future(stream.read(_arriving(socket, runtime), partial(_gone, socket)))
    try:
        # One that leaves while it is answered ends the stream as well.
        with suppress(ClientDisconnect, WebSocketDisconnect):
            await _answer(socket, stream, request_id)
    finally:
        reading.cancel()
        stream.close()
        permit.release()
        report_socket(socket.scope, stream.ending)


async def _answer(socket: WebSocket, stream: Stream, request_id: str) -> None:
    """Sends every answer, and the closing line when it is the server that ends the stream."""
    async for encoded in stream.answers():
        message = b"".join(encoded.parts)
        if encoded.media_type == MEDIA_TYPE:
            await socket.send_bytes(message)
        else:
            await socket.send_text(message.decode())
    ending = stream.ending
    last = closing(ending.requests, ending.failed, ending.error, request_id)
    await socket.send_text(last.decode())
    await socket.close(GOING_AWAY, ending.error.detail if ending.error else "")


async def _arriving(socket: WebSocket, runtime: Runtime) -> AsyncIterator[Arrived]:
    """The messages as they come, until the client leaves or the server stops."""
    index = 0
    while message := await next_message(socket.receive, runtime.admission.closing):
        if message["type"] == "websocket.disconnect":
            raise ClientDisconnect
        text, binary = message.get("text"), message.get("bytes")
        if text is not None:
            exchange: StreamedExchange = LineExchange(index, runtime.settings)
            yield Arrived(exchange, bytearray(text, "utf-8"))
        elif binary is not None:
            yield Arrived(SocketExchange(runtime.settings, runtime.regions), bytearray(binary))
        index += 1


async def _gone(socket: WebSocket) -> None:
    """Returns when the client has left; what it still sends is not read."""
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass
