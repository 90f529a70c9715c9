"""A real name server and broker on the loop of the test, with tiny files and free ports."""

import contextlib
import pathlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.namesrv.config import NameServerConfig
from rocketlet.namesrv.server import NameServer
from rocketlet.remoting.transport.event_loop import LoopClock

SMALL_FILES = {
    "mappedFileSizeCommitLog": "4194304",
    "mappedFileSizeConsumeQueue": "60000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
}


@contextlib.asynccontextmanager
async def running_broker(
    nameserver: NameServer,
    store: pathlib.Path,
    name: str = "broker-a",
    port: int = 0,
    settings: Mapping[str, str] | None = None,
) -> AsyncGenerator[Broker]:
    """Run a broker over a directory, registered at the name server, with Java's settings if any."""
    all_settings = {
        "brokerName": name,
        "listenPort": str(port),
        "namesrvAddr": nameserver.address,
        "storePathRootDir": str(store),
        **SMALL_FILES,
        **(settings or {}),
    }
    async with Broker(BrokerConfig.from_java(all_settings), LoopClock()) as broker:
        yield broker


@contextlib.asynccontextmanager
async def restartable_broker(
    nameserver: NameServer, store: pathlib.Path
) -> AsyncGenerator[Callable[[], Awaitable[None]]]:
    """Run a broker; what is yielded stops it and starts it again on its files and at its port."""
    async with contextlib.AsyncExitStack() as stack:
        broker = await stack.enter_async_context(running_broker(nameserver, store))
        port = int(broker.address.rpartition(":")[2])

        async def restart() -> None:
            await stack.aclose()
            await stack.enter_async_context(running_broker(nameserver, store, port=port))

        yield restart


@contextlib.asynccontextmanager
async def running_nameserver() -> AsyncGenerator[NameServer]:
    """Run a name server."""
    async with NameServer(NameServerConfig(port=0), LoopClock()) as nameserver:
        yield nameserver
