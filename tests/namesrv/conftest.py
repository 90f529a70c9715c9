"""A real name server on a free port, under a clock that the test moves."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
from raw_calls import Caller, open_caller
from standing_servers import clock, nameserver

from rocketlet.namesrv.config import NameServerConfig
from rocketlet.namesrv.server import NameServer
from rocketlet.testing.manual_clock import ManualClock

__all__ = ["clock", "nameserver"]  # fixtures


@pytest.fixture
async def caller(nameserver: NameServer) -> AsyncGenerator[Caller]:
    """Return a connection to the name server."""
    async with open_caller(nameserver.address) as opened:
        yield opened


@pytest.fixture
async def start(clock: ManualClock) -> AsyncGenerator[Callable[..., Awaitable[Caller]]]:
    """Return a call that runs a name server with Java's settings, and gives a connection to it."""
    async with AsyncExitStack() as started:

        async def open_server(**settings: str) -> Caller:
            config = NameServerConfig.from_java({"listenPort": "0", **settings})
            server = await started.enter_async_context(NameServer(config, clock))
            return await started.enter_async_context(open_caller(server.address))

        yield open_server
