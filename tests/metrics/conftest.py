"""A broker with its metrics, and what scrapes them."""

import json
import pathlib
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import pytest
from metrics_scrape import OPENMETRICS, Scrape, Scraped, scrape_url
from raw_calls import Caller, open_caller
from real_broker import running_broker, running_nameserver

from rocketlet.broker.server import Broker
from rocketlet.metrics.server import MetricsConfig, MetricsServer
from rocketlet.remoting.transport.event_loop import LoopClock


@pytest.fixture
async def broker(tmp_path: pathlib.Path) -> AsyncGenerator[Broker]:
    """Run a broker."""
    async with running_nameserver() as nameserver, running_broker(nameserver, tmp_path / "store") as running:
        yield running


@pytest.fixture
async def metrics(broker: Broker) -> AsyncGenerator[MetricsServer]:
    """Serve its metrics at a free port."""
    async with MetricsServer(broker.figures, MetricsConfig(), LoopClock()) as server:
        yield server


@pytest.fixture
def scrape(metrics: MetricsServer) -> Scrape:
    """Return what scrapes the metrics of the broker."""

    async def ask(accept: str = OPENMETRICS) -> Scraped:
        return await scrape_url(metrics.url, accept)

    return ask


@pytest.fixture
async def caller(broker: Broker) -> AsyncGenerator[Caller]:
    """Connect to the broker."""
    async with open_caller(broker.address) as connected:
        yield connected


@pytest.fixture
def boards() -> Mapping[str, Mapping[str, Any]]:
    """Return the labels of each metric that boards of others query, by board."""
    return json.loads((pathlib.Path(__file__).parent / "boards.json").read_text())
