"""The console as a server over one cluster, on the running event loop (``http_server.py``)."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final, Self

from ..client import Admin, ClientSettings, Producer, ProducerSettings, Session
from ..common.ids import format_address
from ..remoting.transport.addresses import reachable_host
from ..remoting.transport.server import open_listener
from .access import Access
from .app import build_app
from .http_server import HttpServer

GROUP: Final = "ROCKETLET_CONSOLE"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleConfig:
    """Where the console listens; port 0 is a free one. ``token`` None makes one up where one is needed.

    That is on other addresses than loopback ones, and wherever the console signs its requests.
    """

    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = None


class ConsoleServer:
    """The console over one cluster; ``async with`` starts and ends it.

        async with ConsoleServer("127.0.0.1:9876") as console:
            print(console.url)

    Raises on entering:
        AddressInUseError: the port is taken.
    """

    def __init__(
        self, nameserver: str | None = None, config: ConsoleConfig | None = None, settings: ClientSettings | None = None
    ) -> None:
        self._config = config or ConsoleConfig()
        lends_rights = settings is not None and settings.credentials is not None
        self._access = Access(self._config.host, self._config.token, lends_rights=lends_rights)
        self._session = Session(nameserver, settings=settings)
        self._stack = AsyncExitStack()
        self._address: tuple[str, int] | None = None

    def __repr__(self) -> str:
        return f"<ConsoleServer {self._address or 'closed'}>"

    @property
    def url(self) -> str:
        """The address to open in a browser, with the token where one is needed."""
        assert self._address is not None, "asked for inside of the context"
        where = format_address(reachable_host(self._config.host), self._address[1])
        return f"http://{where}/?token={self._access.token}" if self._access.token else f"http://{where}/"

    async def __aenter__(self) -> Self:
        """Bind the port; servers are asked when a page is."""
        async with AsyncExitStack() as stack:
            listening = open_listener(self._config.host, self._config.port, key="--host")
            stack.callback(listening.close)
            session = await stack.enter_async_context(self._session)
            admin = await stack.enter_async_context(Admin(session=session))
            settings = ProducerSettings()
            producer = await stack.enter_async_context(Producer(GROUP, session=session, settings=settings))
            cluster = ", ".join(session.nameserver_addresses)
            app = await asyncio.to_thread(build_app, admin, producer, cluster, self._access)
            await stack.enter_async_context(HttpServer(app, listening))
            self._address = listening.getsockname()[:2]
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the port and the connections."""
        await self._stack.aclose()
        self._address = None
