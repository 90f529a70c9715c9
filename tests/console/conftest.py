"""A console over a real broker, and a browser without a window that asks it."""

import pathlib
from collections.abc import AsyncGenerator

import httpx
import pytest
from real_broker import running_broker, running_nameserver

from rocketlet.console.server import ConsoleConfig, ConsoleServer


@pytest.fixture
async def nameserver(tmp_path: pathlib.Path) -> AsyncGenerator[str]:
    """Run a broker; yield the address of its name server."""
    settings = {"enablePropertyFilter": "true"}
    async with running_nameserver() as server, running_broker(server, tmp_path / "store", settings=settings):
        yield server.address


@pytest.fixture
async def console(nameserver: str) -> AsyncGenerator[ConsoleServer]:
    """Run the console at a free port of the loopback address."""
    async with ConsoleServer(nameserver, ConsoleConfig()) as server:
        yield server


@pytest.fixture
async def web(console: ConsoleServer) -> AsyncGenerator[httpx.AsyncClient]:
    """Yield what asks the console, and follows where it sends."""
    async with httpx.AsyncClient(base_url=console.url, follow_redirects=True, trust_env=False) as client:
        yield client
