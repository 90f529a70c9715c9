"""A name server that never answers."""

from collections.abc import AsyncGenerator

import pytest
from registrations import SilentNameServer, silent_name_server

from rocketlet.testing.manual_clock import ManualClock


@pytest.fixture
async def silent_nameserver(clock: ManualClock) -> AsyncGenerator[SilentNameServer]:
    """Run a name server that takes requests and never answers."""
    async with silent_name_server(clock) as server:
        yield server
