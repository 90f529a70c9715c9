"""Serves an ASGI application on the running event loop, without a thread, a signal handler or a log of its own.

uvicorn's own way to run would install signal handlers and look ten times a second whether it shall stop; here its
start and its end are called one by one, and whoever leaves the context manager is the signal.
"""

import asyncio
import socket
from typing import Final, Self

import uvicorn
from starlette.types import ASGIApp

_PATIENCE_S: Final = 2  # for requests that are being served when it ends


class HttpServer:
    """An application behind a socket that listens, which it closes at the end; ``async with`` starts and ends it."""

    def __init__(self, app: ASGIApp, listening: socket.socket) -> None:
        self._listening = listening
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                date_header=False,
                timeout_graceful_shutdown=_PATIENCE_S,
            )
        )

    def __repr__(self) -> str:
        return f"<HttpServer {self._listening}>"

    async def __aenter__(self) -> Self:
        """Begin to serve."""
        server = self._server
        server.config.load()
        server.lifespan = server.config.lifespan_class(server.config)
        await server.startup(sockets=[self._listening])
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the port, and the connections when what they ask has been answered or has taken too long."""
        await self._server.shutdown(sockets=[self._listening])
        await asyncio.sleep(0)  # transports close in the next turn
