"""Producer and consumer inside a web application: Starlette on uvicorn, with either loop."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncGenerator

import pytest
import uvicorn
from inbox import Inbox
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from subscribed import push_consumer

from rocketlet.client import Message, Producer


class Shop:
    """An application that takes orders, and reads them back from the broker."""

    def __init__(self, namesrv: str) -> None:
        self._namesrv = namesrv
        self._inbox = Inbox()
        self._producer: Producer | None = None
        routes = [Route("/orders", self._take, methods=["POST"]), Route("/orders", self._show)]
        self.application = Starlette(routes=routes, lifespan=self._live)

    @contextlib.asynccontextmanager
    async def _live(self, _application: Starlette) -> AsyncGenerator[None]:
        consumer = push_consumer(self._namesrv, self._inbox, group="shop", topic="orders")
        async with Producer("shop", self._namesrv) as self._producer, consumer:
            yield

    async def _take(self, request: Request) -> JSONResponse:
        assert self._producer is not None, "requests come between start and end of the application"
        result = await self._producer.send(Message("orders", await request.body()))
        return JSONResponse({"id": result.message_id})

    async def _show(self, request: Request) -> JSONResponse:
        messages = await self._inbox.wait_for(int(request.query_params["count"]))
        return JSONResponse(sorted(message.body.decode() for message in messages))


@contextlib.asynccontextmanager
async def serving(application: Starlette) -> AsyncGenerator[str]:
    """Serve an application on a free port; stop as a signal does."""
    config = uvicorn.Config(application, log_level="warning", lifespan="on", ws="none")
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(server.serve([listening]))
            try:
                yield f"127.0.0.1:{listening.getsockname()[1]}"
            finally:
                server.should_exit = True
                await running


async def ask(address: str, method: str, path: str, body: bytes = b"") -> object:
    """Make a request and return the JSON of the answer."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"{method} {path} HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    answer = await reader.read()
    writer.close()
    head, _, found = answer.partition(b"\r\n\r\n")
    assert b" 200 " in head.splitlines()[0], answer
    return json.loads(found)


@pytest.mark.feature("B28")
async def test_requests_send_and_read(address: str) -> None:
    """Each of many requests at once sends; the application's consumer gets all; it ends with nothing left behind."""
    tasks = asyncio.all_tasks()
    async with serving(Shop(address).application) as url:
        async with asyncio.TaskGroup() as group:
            sending = [group.create_task(ask(url, "POST", "/orders", b"%03d" % number)) for number in range(50)]
        assert len({str(each.result()) for each in sending}) == 50
        assert await ask(url, "GET", "/orders?count=50") == [f"{number:03d}" for number in range(50)]
    assert asyncio.all_tasks() <= tasks
