"""A control port over a fixture of its own, and who asks it."""

import pathlib
from collections.abc import AsyncGenerator

import httpx
import pytest

from rocketlet.cli.control_port.server import ControlledBroker, ControlServer
from rocketlet.testing import RocketmqBroker
from rocketlet.testing.servers import Deployment


@pytest.fixture
async def broker(tmp_path: pathlib.Path) -> AsyncGenerator[RocketmqBroker]:
    """Run a broker, with its store in a directory of the test's own."""
    async with ControlledBroker({}, Deployment(directory=str(tmp_path))) as started:
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
