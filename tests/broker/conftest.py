"""A real broker and name server on free ports, under a clock that the test moves, and raw calls to them."""

import pathlib
from collections.abc import AsyncGenerator

import pytest
from raw_calls import Caller, open_caller
from standing_servers import clock, nameserver

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.namesrv.server import NameServer
from rocketlet.testing.manual_clock import ManualClock

__all__ = ["clock", "nameserver"]  # fixtures

SETTINGS = {
    "brokerName": "broker-a",
    "brokerClusterName": "cluster-a",
    "listenPort": "0",
    "mappedFileSizeCommitLog": "16777216",
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
}


@pytest.fixture
def settings(tmp_path: pathlib.Path, nameserver: NameServer) -> dict[str, str]:
    """Return the broker's settings, small files and a store of its own; a test may change them before the start."""
    return {**SETTINGS, "storePathRootDir": str(tmp_path / "store"), "namesrvAddr": nameserver.address}


@pytest.fixture
async def broker(settings: dict[str, str], clock: ManualClock) -> AsyncGenerator[Broker]:
    """Run a broker that is registered."""
    async with Broker(BrokerConfig.from_java(settings), clock) as started:
        yield started


@pytest.fixture
async def caller(broker: Broker) -> AsyncGenerator[Caller]:
    """Return a connection to the broker."""
    async with open_caller(broker.address) as opened:
        yield opened
