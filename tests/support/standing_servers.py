"""Servers of this process under a clock that the test moves; a folder's ``conftest.py`` imports the fixtures."""

from collections.abc import AsyncGenerator

import pytest

from rocketlet.namesrv.config import NameServerConfig
from rocketlet.namesrv.server import NameServer
from rocketlet.testing.manual_clock import ManualClock

__all__ = ["clock", "nameserver"]


@pytest.fixture
def clock() -> ManualClock:
    """Return a clock that stands until the test moves it."""
    return ManualClock()


@pytest.fixture
async def nameserver(clock: ManualClock) -> AsyncGenerator[NameServer]:
    """Run a name server."""
    async with NameServer(NameServerConfig(port=0), clock) as server:
        yield server
