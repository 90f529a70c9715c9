"""A real broker behind a transport in memory, so that what a read costs can be counted to the call."""

import pathlib
from collections.abc import AsyncGenerator

import pytest
from memory_connection import MemoryTransport, connect_in_memory

import rocketlet.broker.server as broker_server
from rocketlet.broker.config import BrokerConfig
from rocketlet.common.clock import Clock
from rocketlet.remoting.connection import Connection
from rocketlet.remoting.server import RemotingServer
from rocketlet.remoting.service import Limits, Service
from rocketlet.testing.manual_clock import ManualClock


@pytest.fixture
async def connected(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[tuple[Connection, MemoryTransport]]:
    """Start a broker with Java's default sizes and connect to it."""
    services: list[Service] = []

    class ObservedServer(RemotingServer):
        def __init__(self, host: str, port: int, service: Service, clock: Clock, limits: Limits | None = None) -> None:
            services.append(service)
            super().__init__(host, port, service, clock, limits)

    monkeypatch.setattr(broker_server, "RemotingServer", ObservedServer)
    clock = ManualClock()
    settings = {"storePathRootDir": str(tmp_path / "store"), "listenPort": "0", "brokerName": "broker-a"}
    async with broker_server.Broker(BrokerConfig.from_java(settings), clock):
        yield connect_in_memory(services[0], clock)
