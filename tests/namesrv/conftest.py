"""A real name server on a free port, under a clock that the test moves."""

from collections.abc import AsyncGenerator

import pytest
from raw_calls import Caller, open_caller

from rocketlet.namesrv.config import NameServerConfig
from rocketlet.namesrv.server import NameServer
from rocketlet.testing.manual_clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    """Return a clock that stands until the test moves it."""
    return ManualClock()


@pytest.fixture
async def nameserver(clock: ManualClock) -> AsyncGenerator[NameServer]:
    """Run a name server."""
    async with NameServer(NameServerConfig(port=0), clock) as server:
        yield server


@pytest.fixture
async def caller(nameserver: NameServer) -> AsyncGenerator[Caller]:
    """Return a connection to the name server."""
    async with open_caller(nameserver.address) as opened:
        yield opened
