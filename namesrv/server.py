"""A running name server.

    async with NameServer(NameServerConfig(port=0), LoopClock()) as server:
        print(server.address)

Inside the block the port is bound; after it no connection, task or timer is left.
"""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import Self

import msgspec

from ..common.clock import Clock
from ..common.codes import ResponseCode
from ..common.errors import ConfigError
from ..common.ids import format_address
from ..common.java_json import read_table_as
from ..common.outcome import Outcome
from ..remoting.codec.command import Command
from ..remoting.tls.server_tls import EndpointTls, admit
from ..remoting.tls.tls_settings import OWN_FILE
from ..remoting.transport.addresses import Advertised, check_advertised, is_ip_address, local_host
from ..remoting.transport.connection import Around, Connection, RequestHandlers
from ..remoting.transport.event_loop import TaskScope, repeat
from ..remoting.transport.limits import server_limits
from ..remoting.transport.server import RemotingServer
from ..store.files.config_files import load_config, save_config_text
from .config import LiveSettings, NameServerConfig
from .handlers import name_server_handlers
from .kv_table import KvFile, KvTable
from .routes import NameServerRoutes


class NameServer:
    """Keeps routes for one set of clusters (``NamesrvController``); ``around`` stands before its handlers."""

    def __init__(self, config: NameServerConfig, clock: Clock, *, around: Around | None = None) -> None:
        self._config = config
        self._clock = clock
        self._around = around
        self._kv = KvTable()
        self._settings = LiveSettings(config, self._kv)
        self._routes = NameServerRoutes()
        self._kv_turn = asyncio.Lock()
        self._writer: ThreadPoolExecutor | None = None
        self._tasks = TaskScope()
        self._stack = AsyncExitStack()
        self.advertised = Advertised(config.advertised_host, config.advertised_port, (config.host, config.port))

    def __repr__(self) -> str:
        return f"<NameServer {self.address} {self._routes!r}>"

    @property
    def address(self) -> str:
        """The ``host:port`` that clients shall use; after the start, with the port that is bound."""
        return format_address(*self.advertised.told)

    @property
    def local_address(self) -> str:
        """The ``host:port`` under which this machine reaches it, whatever clients shall use."""
        host, port = self.advertised.bound
        return format_address(local_host(host), port)

    async def __aenter__(self) -> Self:
        """Load the key-value table and bind the port.

        Raises:
            ConfigError: the port or the file of the table cannot be used.
        """
        if is_ip_address(self._config.advertised_host) and not self._config.advertised_port:
            check_advertised(self._config.advertised_host, self._config.host)
        async with AsyncExitStack() as stack:
            if self._config.kv_path:
                self._writer = stack.enter_context(ThreadPoolExecutor(1, "rocketlet-files"))
                content = await asyncio.get_running_loop().run_in_executor(
                    self._writer, _load_table, self._config.kv_path
                )
                if content is not None:
                    self._kv.load(content)
            await stack.enter_async_context(self._tasks)
            config = self._config
            if config.notifies_first:
                await self._notify_first(stack)
            limits = server_limits(config.max_idle_seconds, config.high_water_bytes, config.low_water_bytes)
            admission = await admit(
                config.tls, EndpointTls(config.tls.pair, self._own_pair_path()), self._clock, config.proxies
            )
            server = RemotingServer(
                config.host, config.port, self._request_handlers(), self._clock, limits, admission=admission
            )
            await stack.enter_async_context(server)
            self.advertised = self.advertised._replace(bound=server.address)
            self._tasks.start(repeat(self._drop_silent, self._clock, first_ms=self._config.scan_period_ms), "expiry")
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the port and every connection."""
        await self._stack.aclose()

    async def _notify_first(self, stack: AsyncExitStack) -> None:
        from ..remoting.tls.contexts import client_context
        from ..remoting.transport.client import ConnectionPool  # only here does a name server ask anybody
        from .first_notices import FirstNotices

        context = await asyncio.to_thread(client_context, self._config.tls)
        pool = await stack.enter_async_context(ConnectionPool(self._clock, tls=context))
        self._routes.subscribe(FirstNotices(pool, self._tasks).tell)

    def _own_pair_path(self) -> str:
        """Where a certificate is kept that the name server makes: beside its table, or nowhere."""
        table = self._config.kv_path
        return os.path.join(os.path.dirname(os.path.expanduser(table)), OWN_FILE) if table else ""

    def _request_handlers(self) -> RequestHandlers:
        save = self._save_kv if self._config.kv_path else None
        handlers = RequestHandlers(name_server_handlers(self._routes, self._settings, self._kv, save, self._clock))
        return handlers if self._around is None else self._around(handlers)

    async def _drop_silent(self) -> int:
        for link in self._routes.expire(self._clock.monotonic_ms()):
            if isinstance(link, Connection):
                link.close()
        return self._settings.config.scan_period_ms

    def _save_kv(self, saved: Outcome[Command]) -> None:
        self._tasks.start(self._write_kv(saved), "save key-value table")

    async def _write_kv(self, saved: Outcome[Command]) -> None:
        async with self._kv_turn:
            text = msgspec.json.format(msgspec.json.encode(self._kv.content()), indent=1).decode()
            try:
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(self._writer, save_config_text, self._config.kv_path, text)
            except OSError as error:
                saved.answer_with(
                    Command.response(ResponseCode.SYSTEM_ERROR, f"{self._config.kv_path}: {error.strerror}")
                )
                return
        saved.answer_with(Command.response(ResponseCode.SUCCESS))


def _load_table(path: str) -> KvFile | None:
    try:
        return load_config(path, lambda text: read_table_as(text, KvFile), sets_aside=True)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", key="kvConfigPath") from error
