"""A real broker behind a transport in memory, so that what a read costs can be counted to the call."""

import pathlib
from collections.abc import AsyncGenerator

import pytest
from memory_connection import MemoryTransport, connect_in_memory
from served import Served, observe, serve_broker, serve_nameserver

import rocketlet.broker.server as broker_server
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.remoting.transport.connection import Connection
from rocketlet.testing.manual_clock import ManualClock


@pytest.fixture
def sizes() -> dict[str, str]:
    """Return no settings: the sizes of files are Java's defaults."""
    return {}


@pytest.fixture
async def connected(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, sizes: dict[str, str]
) -> AsyncGenerator[tuple[Connection, MemoryTransport]]:
    """Start a broker and connect to it."""
    observed = observe(monkeypatch, broker_server)
    clock = ManualClock()
    settings = {"storePathRootDir": str(tmp_path / "store"), "listenPort": "0", "brokerName": "broker-a", **sizes}
    async with broker_server.Broker(BrokerConfig.from_java(settings), clock):
        yield connect_in_memory(observed[0].handlers, clock)


@pytest.fixture
async def served_broker(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Served]:
    """Give a connection to a broker with messages, groups and a client."""
    async with serve_broker(tmp_path, monkeypatch) as served:
        yield served


@pytest.fixture
async def served_nameserver(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Served]:
    """Give a connection to a name server with a broker."""
    async with serve_nameserver(monkeypatch) as served:
        yield served
