"""Fixtures of the client's tests.

A test that uses ``address`` is one of the client suite: it runs against our broker and against the official one.
"""

import asyncio
import pathlib
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping

import pytest
import uvloop
from interop.versions import skipped_without
from official_broker import OfficialBroker
from push_bench import Bench
from real_broker import running_broker, running_nameserver
from scripted_cluster import ScriptedCluster

from rocketlet.client import Producer
from rocketlet.namesrv.server import NameServer


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run every asynchronous test on plain asyncio and on uvloop."""
    return {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the start of the official broker, which the first test may do, take longer than a test.

    The official broker is met on one loop: what it is told does not depend on that.
    """
    items[:] = [item for item in items if not (_is_here(item) and item.name.endswith("[uvloop-java]"))]
    for item in filter(_is_here, items):
        item.add_marker(pytest.mark.timeout(120, func_only=True))


def _is_here(item: pytest.Item) -> bool:
    return item.nodeid.startswith("tests/client/")


@pytest.fixture
async def cluster() -> AsyncGenerator[ScriptedCluster]:
    """Yield a scripted cluster without brokers."""
    async with ScriptedCluster() as running:
        yield running


@pytest.fixture
async def bench(cluster: ScriptedCluster) -> Bench:
    """Return a push consumer's bench: one scripted broker with one queue of T."""
    cluster.routes["T"] = {"broker-a": 1}
    return Bench(cluster, await cluster.add_broker("broker-a"))


@pytest.fixture
async def nameserver() -> AsyncGenerator[NameServer]:
    """Yield a real name server."""
    async with running_nameserver() as running:
        yield running


@pytest.fixture(scope="session")
def official_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OfficialBroker]:
    """Return the official broker that the suite's tests share."""
    with skipped_without("the official broker"):
        broker = OfficialBroker(tmp_path_factory.mktemp("official") / "store")
    with broker:
        yield broker


@pytest.fixture(params=["rocketlet", "java"])
def official(request: pytest.FixtureRequest) -> OfficialBroker | None:
    """Return the official broker, wiped, or nothing where the test runs against ours."""
    if request.param == "rocketlet":
        return None
    broker: OfficialBroker = request.getfixturevalue("official_broker")
    broker.wipe()
    return broker


@pytest.fixture
async def address(official: OfficialBroker | None, tmp_path: pathlib.Path) -> AsyncGenerator[str]:
    """Yield the address of a name server at which one broker is registered: both ours, then both official."""
    if official is not None:
        yield official.namesrv
        return
    async with running_nameserver() as nameserver, running_broker(nameserver, tmp_path / "store"):
        yield nameserver.address


@pytest.fixture
async def producer(address: str) -> AsyncGenerator[Producer]:
    """Yield a producer at the broker of ``address``."""
    async with Producer("pg", address) as running:
        yield running


@pytest.fixture
async def own_address(nameserver: NameServer, tmp_path: pathlib.Path) -> AsyncGenerator[str]:
    """Yield the address of our name server with our broker: for what needs requests to be served in their order."""
    async with running_broker(nameserver, tmp_path / "store"):
        yield nameserver.address
