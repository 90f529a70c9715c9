"""The ports of a broker: one for everybody, and beside it two that slaves use (spec replication.md §1).

    listenPort          requests of clients
    listenPort - 2      the same, for slaves: those of Apache RocketMQ ask for half of the tables there ("fast port")
    haListenPort        the copy of the log; unless given, listenPort + 1

A free port is one whose neighbours are free as well. Where the port is given and a neighbour of it is taken, an
ASYNC_MASTER goes on without that neighbour and says what that means; SYNC_MASTER and SLAVE do not start, nor does a
master that is to wait for its slaves.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Final, Self

from ..common.clock import Clock
from ..common.errors import AddressInUseError, ConfigError
from ..common.ids import Address
from ..remoting.tls.server_tls import EndpointTls, admit
from ..remoting.tls.tls_settings import OWN_FILE
from ..remoting.transport.acceptor import Admission
from ..remoting.transport.server import RemotingServer
from .replication.ha_server import HA_BIND_KEY, HaServer
from .settings.config import BrokerConfig
from .settings.replication import ASYNC_MASTER

FAST_PORT_STEP: Final = -2
HA_PORT_STEP: Final = 1
_MOST_PORT: Final = 65_535
_MOST_TRIES: Final = 100
_GRPC_ALPN: Final = ("h2",)
_log = logging.getLogger(__name__)


async def admit_clients(config: BrokerConfig, clock: Clock) -> Admission:
    """Return whom the ports for requests let in.

    Raises:
        ConfigError: TLS is configured and cannot be served.
    """
    return await admit(config.tls, EndpointTls(config.tls.pair, _own_path(config)), clock, config.proxies)


async def admit_grpc(config: BrokerConfig, clock: Clock) -> Admission:
    """Return whom the gRPC port lets in; asked at the start, so that files that cannot be used stop it.

    Raises:
        ConfigError: TLS is configured and cannot be served.
    """
    end = EndpointTls(config.tls.grpc_pair, _own_path(config), _GRPC_ALPN)
    return await admit(config.tls, end, clock, config.proxies)


def _own_path(config: BrokerConfig) -> str:
    return os.path.join(config.store.root, "config", OWN_FILE)


class BrokerPorts:
    """Listens at the ports; ``address`` is that for everybody."""

    def __init__(self, config: BrokerConfig, make_server: Callable[[int], RemotingServer], ha_server: HaServer) -> None:
        self._config = config
        self._make_server = make_server
        self._ha_server = ha_server
        self._stack = AsyncExitStack()
        self.address: Address = (config.host, config.port)

    def __repr__(self) -> str:
        return f"<BrokerPorts {self.address}, HA {self._ha_server.port}>"

    @property
    def ha_port(self) -> int:
        """The port at which slaves are told to copy the log."""
        return self._ha_server.port or self._config.replication.ha_port or self.address[1] + HA_PORT_STEP

    async def __aenter__(self) -> Self:
        """Bind the ports.

        Raises:
            ConfigError: One that is needed cannot be bound.
        """
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._ha_server)
            if self._config.port:
                await self._listen(stack, self._config.port, self._say_missing)
            else:
                await self._find_free(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close them with all connections."""
        await self._stack.aclose()

    async def _find_free(self, stack: AsyncExitStack) -> None:
        for _ in range(_MOST_TRIES):
            async with AsyncExitStack() as tried:
                try:
                    await self._listen(tried, 0, self._refuse_missing)
                except AddressInUseError as error:
                    if error.port == self._config.replication.ha_port:
                        raise
                    continue
                stack.push_async_exit(tried.pop_all())
                return
        raise ConfigError(f"no free port on {self._config.host} has free neighbours, for slaves", key="listenPort")

    async def _listen(
        self, stack: AsyncExitStack, port: int, miss: Callable[[str, ConfigError], Awaitable[None]]
    ) -> None:
        server = await stack.enter_async_context(self._make_server(port))
        self.address, port = server.address, server.address[1]
        try:
            fast_port = port + FAST_PORT_STEP
            if fast_port <= 0:
                raise ConfigError(f"the port below it would be {fast_port}", key="listenPort")
            await stack.enter_async_context(self._make_server(fast_port))
        except ConfigError as error:
            await miss("slaves of Apache RocketMQ cannot copy the tables of this broker", error)
        try:
            ha_port = self._config.replication.ha_port or port + HA_PORT_STEP
            if ha_port > _MOST_PORT:
                raise ConfigError(f"the port above it would be {ha_port}", key="listenPort")
            await self._ha_server.listen(self._config.replication.ha_bind_host or self._config.host, ha_port)
        except ConfigError as error:
            await miss("slaves cannot copy the log of this broker", error)

    async def _refuse_missing(self, _consequence: str, error: ConfigError) -> None:
        raise error

    async def _say_missing(self, consequence: str, error: ConfigError) -> None:
        replication = self._config.replication
        if replication.role != ASYNC_MASTER or replication.begins_isolated or error.key == HA_BIND_KEY:
            raise error
        _log.warning("%s: %s%s; going on without", consequence, error, await _describe_holder(error))


async def _describe_holder(error: ConfigError) -> str:
    """Return who has a port that is in use, and which setting takes another."""
    if not isinstance(error, AddressInUseError):
        return ""
    from ..remoting.transport.port_holder import find_holder  # needed where a port is taken, which is rare

    holder = await asyncio.to_thread(find_holder, error.port)
    other = "haListenPort takes another port" if error.key == "haListenPort" else "it is listenPort - 2"
    return f"{f' by {holder}' if holder else ''} ({other})"
