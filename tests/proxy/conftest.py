"""A real broker under a clock that the test moves."""

import gc
import pathlib
from collections.abc import AsyncGenerator, Iterator

import pytest
from raw_calls import Caller, open_caller
from standing_servers import clock

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.testing.manual_clock import ManualClock

__all__ = ["clock"]  # a fixture

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
def settings(tmp_path: pathlib.Path) -> dict[str, str]:
    """Return the settings of a broker that no name server knows; a test may change them before the start."""
    return {**SETTINGS, "storePathRootDir": str(tmp_path / "store")}


@pytest.fixture
async def broker(settings: dict[str, str], clock: ManualClock) -> AsyncGenerator[Broker]:
    """Run a broker."""
    async with Broker(BrokerConfig.from_java(settings), clock) as started:
        yield started


@pytest.fixture
async def caller(broker: Broker) -> AsyncGenerator[Caller]:
    """Return a connection of the remoting protocol to the broker."""
    async with open_caller(broker.address) as opened:
        yield opened


@pytest.fixture
def no_channels_left() -> Iterator[None]:
    """Let go of channels here: they wait for a lock then, which the loop of another test must not see."""
    yield
    gc.collect()
