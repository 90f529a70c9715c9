"""The fixture and its control port as servers of one process.

The fixture has a thread and an event loop of its own, the server of HTTP is on the running one: what blocks there does
not block here, and a test that lets the broker hang can still end that.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Self

from ...common.ids import format_address
from ...console.http_server import HttpServer
from ...remoting.transport.addresses import is_loopback, reachable_host
from ...remoting.transport.server import open_listener
from ...testing.broker_thread import RocketmqBroker
from ...testing.servers import Deployment
from .app import ControlApp
from .operations import ControlOperations, describe_failures

_log = logging.getLogger(__name__)


class ControlServer:
    """The control port of one fixture; ``async with`` starts and ends it.

    Raises on entering:
        AddressInUseError: the port is taken.
    """

    def __init__(self, broker: RocketmqBroker, host: str, port: int, version: str) -> None:
        self._host = host
        self._port = port
        self._operations = ControlOperations(broker, version)
        self._app = ControlApp(self._operations, version, is_local=host == "localhost" or is_loopback(host))
        self._stack = AsyncExitStack()
        self.url = ""

    def __repr__(self) -> str:
        return f"<ControlServer {self.url or 'closed'}>"

    async def __aenter__(self) -> Self:
        """Bind the port."""
        async with AsyncExitStack() as stack:
            listening = open_listener(self._host, self._port, key="--host")
            stack.callback(listening.close)
            self.url = f"http://{format_address(reachable_host(self._host), listening.getsockname()[1])}"
            await stack.enter_async_context(HttpServer(self._app.asgi, listening))
            stack.push_async_callback(self._operations.wait_end)
            stack.callback(self._app.stop)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """End what waits, close the port, and let what has been begun be done."""
        await self._stack.aclose()


class ControlledBroker:
    """A fixture for as long as the process runs; ``async with`` starts and ends it on a thread."""

    def __init__(self, settings: Mapping[str, str], deployment: Deployment) -> None:
        self._settings = settings
        self._deployment = deployment
        self._broker: RocketmqBroker | None = None

    def __repr__(self) -> str:
        return f"<ControlledBroker {self._broker or 'closed'}>"

    async def __aenter__(self) -> RocketmqBroker:
        """Start name server and broker (raises what the fixture raises)."""
        self._broker = await asyncio.to_thread(self._start)
        return self._broker

    def _start(self) -> RocketmqBroker:
        return RocketmqBroker(self._settings, deployment=self._deployment).__enter__()

    async def __aexit__(self, *_: object) -> None:
        """Stop them; what is wrong with a test that nobody has ended is logged."""
        broker, self._broker = self._broker, None
        assert broker is not None, "it was started"
        try:
            await asyncio.to_thread(broker.__exit__, None, None, None)
        except (AssertionError, ExceptionGroup) as error:
            for text in describe_failures(error):
                _log.warning("left by a test that was not ended: %s", text)
