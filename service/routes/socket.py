"""GET /v1/ws: a WebSocket for whoever asks step by step."""

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial

from fastapi import APIRouter, WebSocket
from starlette.requests import ClientDisconnect
from starlette.websockets import WebSocketDisconnect

from service.errors import NotReady
from service.lines import next_message
from service.runtime import Runtime
from service.stream import Arrived, Stream, StreamedExchange
from service.wire.jsonl import LineExchange, closing
from service.wire.socket_messages import MEDIA_TYPE, SocketExchange

router = APIRouter(tags=["streams"])

ORDERS = {"input": True, "completion": False}
"""What `?order=` can be, and whether answers are then in the order of the requests."""

GOING_AWAY = 1001
POLICY = 1008

log = logging.getLogger("probmap.request")


@router.websocket("/v1/ws")
async def talk(socket: WebSocket) -> None:
    """Answers messages: lines of JSON as text, Open Inference Protocol bodies as binary ones."""
    runtime: Runtime = socket.app.state.runtime
    request_id, started = uuid.uuid4().hex, time.monotonic()
    await socket.accept(headers=[(b"x-request-id", request_id.encode())])
    order = socket.query_params.get("order", "input")
    if order not in ORDERS:
        await socket.close(POLICY, "order should be input or completion")
        return
    try:
        place = runtime.admission.enter()
    except NotReady as error:
        await socket.close(GOING_AWAY, error.detail)
        return
    stream = Stream(runtime, request_id, in_order=ORDERS[order])
    reading = asyncio.ensure_future(stream.read(_arriving(socket, runtime), partial(_gone, socket)))
    try:
        # One that leaves while it is answered ends the stream as well.
        with suppress(ClientDisconnect, WebSocketDisconnect):
            await _answer(socket, stream, request_id)
    finally:
        reading.cancel()
        stream.close()
        place.release()
        ending = stream.ending
        fields = {
            "request_id": request_id,
            "route": "/v1/ws",
            "requests": ending.requests,
            "failed": ending.failed,
            "ms": round((time.monotonic() - started) * 1000, 3),
        }
        log.info(
            "WS %(route)s %(requests)d requests %(failed)d failed %(ms).1f ms %(request_id)s",
            fields,
            extra={"fields": fields},
        )


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
    while message := await next_message(socket.receive, None, runtime.admission.closing):
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
