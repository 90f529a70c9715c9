"""The two that are compared: the official broker 5.4.0 and its name server in one process, and `rocketlet up`."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Protocol, Self

from interop.driver import Driver
from interop.servers import BROKER_NAME, JavaServer, RocketletServer
from interop.toolchain import java_command

COMPILED: Final = ("-XX:+UseSerialGC", "-Xmx1g")
"""Of the client: both compilers, as fast as the load gets."""
BROKER_OPTIONS: Final = (
    *("-Xmx2g", "-XX:+UseG1GC", "-XX:G1HeapRegionSize=16m", "-XX:G1ReservePercent=25"),
    *("-XX:InitiatingHeapOccupancyPercent=30", "-XX:-OmitStackTraceInFastThrow"),
)
"""What RocketMQ's script ``runbroker.sh`` gives it, with a heap for small machines."""
BROKER_DEFAULTS: Final = {
    "brokerClusterName": "DefaultCluster",
    "brokerName": BROKER_NAME,
    # The load takes all cores; a broker that refuses what has waited for 200 ms would end the run.
    "waitTimeMillsInSendQueue": "10000",
}


class Running(Protocol):
    """A name server and a broker in one process."""

    namesrv: str
    broker: str

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def kill(self) -> None:
        """Kill the process."""
        ...

    @property
    def pid(self) -> int:
        """The id of the process."""
        ...


class Side:
    """One of the two; a context manager that ends its servers."""

    def __init__(self, name: str, directory: Path, start: Callable[[Path, Mapping[str, str]], Running]) -> None:
        self.name = name
        self._directory = directory
        self._start = start
        self._servers: dict[str, Running] = {}
        self._stack = ExitStack()
        self._count = 0

    def __enter__(self) -> Self:
        """Return it, without servers."""
        return self

    def __exit__(self, *_: object) -> None:
        """End all servers."""
        self._stack.close()

    def __repr__(self) -> str:
        return f"<Side {self.name}>"

    def server(self, settings: Mapping[str, str]) -> Running:
        """Return the server that runs with these settings all the time, started when it is asked for first."""
        key = repr(sorted(settings.items()))
        if key not in self._servers:
            self._servers[key] = self._stack.enter_context(self.start(settings))
        return self._servers[key]

    def start(self, settings: Mapping[str, str], store: Path | None = None) -> Running:
        """Start another server, with an empty store or that of one that has ended."""
        return self._start(store or self.new_store(), settings)

    def new_store(self) -> Path:
        """Return where nothing is yet."""
        self._count += 1
        return self._directory / str(self._count)


def official(directory: Path) -> Side:
    """Return the official broker."""
    return Side("Java broker", directory, start_official)


def start_official(store: Path, settings: Mapping[str, str]) -> JavaServer:
    """Start one."""
    return JavaServer(store, settings, options=BROKER_OPTIONS, defaults=BROKER_DEFAULTS)


def own(directory: Path) -> Side:
    """Return rocketlet."""
    return Side("rocketlet", directory, RocketletServer)


def start_client() -> Driver:
    """Start the official client that loads both, a context manager."""
    return Driver("java-load", lambda home: java_command(home, options=COMPILED))
