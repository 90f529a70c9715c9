"""Servers behind a connection in memory, with what the good requests of ``badinput.samples`` need."""

import pathlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
from badinput.samples import prepare_broker, prepare_nameserver
from memory_connection import MemoryTransport, connect_in_memory
from raw_calls import open_caller

import rocketlet.broker.server as broker_server
import rocketlet.namesrv.server as namesrv_server
from rocketlet.broker.components import AdminAnswers
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.namesrv.config import NameServerConfig
from rocketlet.remoting.transport.connection import Connection, Handler, RequestHandlers
from rocketlet.remoting.transport.server import RemotingServer
from rocketlet.testing.manual_clock import ManualClock


class Served(NamedTuple):
    """A connection in memory, what it writes to, and who answers which code."""

    connection: Connection
    transport: MemoryTransport
    handlers: Mapping[int, Handler]


class Observed(NamedTuple):
    """The listening end of a server, and who answers which code."""

    server: RemotingServer
    handlers: RequestHandlers


def observe(monkeypatch: pytest.MonkeyPatch, module: object) -> list[Observed]:
    """Return a list to which each server that a module starts is added."""
    found: list[Observed] = []

    class ObservedServer(RemotingServer):
        def __init__(self, host: str, port: int, handlers: RequestHandlers, *rest: Any, **named: Any) -> None:
            super().__init__(host, port, handlers, *rest, **named)
            found.append(Observed(self, handlers))

    monkeypatch.setattr(module, "RemotingServer", ObservedServer)
    return found


def answered(handlers: RequestHandlers) -> Mapping[int, Handler]:
    """Return who answers which code, those too that are built with the first request for one of them."""
    late = getattr(handlers.fallback, "__self__", None)
    return {**handlers.by_code, **(late.handlers if isinstance(late, AdminAnswers) else {})}


@asynccontextmanager
async def serve_broker(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Served]:
    """Run a broker that filters by properties."""
    observed, clock = observe(monkeypatch, broker_server), ManualClock()
    settings = {
        "storePathRootDir": str(tmp_path / "store"),
        "listenPort": "0",
        "brokerName": "broker-a",
        "enablePropertyFilter": "true",
        "recallMessageEnable": "true",
    }
    async with broker_server.Broker(BrokerConfig.from_java(settings), clock) as broker:
        async with open_caller(broker.address) as caller:
            await prepare_broker(caller)
        connection, transport = connect_in_memory(observed[0].handlers, clock)
        yield Served(connection, transport, answered(observed[0].handlers))
        connection.connection_lost(None)


@asynccontextmanager
async def serve_nameserver(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Served]:
    """Run a name server that knows a broker."""
    observed, clock = observe(monkeypatch, namesrv_server), ManualClock()
    async with (
        namesrv_server.NameServer(NameServerConfig(port=0), clock) as server,
        open_caller(server.address) as caller,
    ):
        await prepare_nameserver(caller)
        connection, transport = connect_in_memory(observed[0].handlers, clock)
        yield Served(connection, transport, answered(observed[0].handlers))
        connection.connection_lost(None)
