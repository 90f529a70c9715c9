"""Fixtures of the client's tests."""

import asyncio
import pathlib
from collections.abc import AsyncGenerator, Callable, Mapping

import pytest
import uvloop
from real_broker import running_broker, running_nameserver
from scripted_cluster import ScriptedCluster

from rocketlet.namesrv.server import NameServer


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run every asynchronous test on plain asyncio and on uvloop."""
    return {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def cluster() -> AsyncGenerator[ScriptedCluster]:
    """Yield a scripted cluster without brokers."""
    async with ScriptedCluster() as running:
        yield running


@pytest.fixture
async def nameserver() -> AsyncGenerator[NameServer]:
    """Yield a real name server."""
    async with running_nameserver() as running:
        yield running


@pytest.fixture
async def address(nameserver: NameServer, tmp_path: pathlib.Path) -> AsyncGenerator[str]:
    """Yield the name server's address, with a real broker registered there."""
    async with running_broker(nameserver, tmp_path / "store"):
        yield nameserver.address
