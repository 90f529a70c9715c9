"""A control port over a fixture of its own, and who asks it."""

from collections.abc import AsyncGenerator

import httpx
import pytest

from rocketlet.cli.control_port.server import ControlledBroker, ControlServer
from rocketlet.testing import RocketmqBroker
from rocketlet.testing.servers import ON_THIS_MACHINE


@pytest.fixture
async def broker() -> AsyncGenerator[RocketmqBroker]:
    """Run a broker."""
    async with ControlledBroker({}, ON_THIS_MACHINE) as started:
        yield started


@pytest.fixture
async def port(broker: RocketmqBroker) -> AsyncGenerator[ControlServer]:
    """Run its control port."""
    async with ControlServer(broker, "127.0.0.1", 0, "1.2.3") as server:
        yield server


@pytest.fixture
async def control(port: ControlServer) -> AsyncGenerator[httpx.AsyncClient]:
    """Yield what asks it."""
    async with httpx.AsyncClient(base_url=port.url, trust_env=False, timeout=60) as client:
        yield client
