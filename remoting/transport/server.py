"""A listening end: binds an address, serves every connection, leaves nothing behind.

    async with RemotingServer("127.0.0.1", 0, handlers, clock) as server:
        host, port = server.address

Inside the block the port is bound and known. After it no connection, timer or socket is left.

A process has so many descriptors, for files and for connections. A store without descriptors cannot flush, so the
uppermost are kept for files: the system hands out the lowest free number, hence a connection with a high one says that
the others are taken, by whomever (``first_kept_descriptor``).
"""

import asyncio
import errno
import logging
import resource
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Final, Self, TypeVar

from msgspec.structs import replace

from ...common.clock import Clock
from ...common.errors import AddressInUseError, ConfigError
from ...common.ids import Address, format_address
from .acceptor import ACCEPTED_AT_ONCE, Admission, Entrance, lengthen_backlog
from .connection import Connection, Handler, Reply, RequestHandlers
from .connections import ConnectionEvents, Connections
from .event_loop import TaskScope
from .limits import Limits

_MAX_PORT = 65_535
PLAIN: Final = Admission()
_CODES = "request_codes"
_log = logging.getLogger(__name__)

HandlerT = TypeVar("HandlerT", bound=Callable[..., Reply])


def answers(*codes: int) -> Callable[[HandlerT], HandlerT]:
    """Mark a method as the handler of request codes; ``handlers_of`` finds it."""

    def mark(handler: HandlerT) -> HandlerT:
        setattr(handler, _CODES, codes)
        return handler

    return mark


def handlers_of(*adapters: object) -> dict[int, Handler]:
    """Return the marked methods of adapters by request code."""
    return {
        int(code): getattr(adapter, name)
        for adapter in adapters
        for name, method in vars(type(adapter)).items()
        for code in getattr(method, _CODES, ())
    }


class RemotingServer:
    """Serves one address. Upstream: ``NettyRemotingServer``."""

    def __init__(
        self,
        host: str,
        port: int,
        handlers: RequestHandlers,
        clock: Clock,
        limits: Limits | None = None,
        events: ConnectionEvents | None = None,
        *,
        admission: Admission = PLAIN,
    ) -> None:
        self._host = host
        self._port = port
        self._handlers = handlers
        self._clock = clock
        self._limits = limits or Limits()
        self._events = events
        self._admission = replace(admission, is_met_early=True)
        self.connections = Connections(clock, self._limits)
        self._server: asyncio.Server | None = None
        self._entrance: Entrance | None = None
        self._stack = AsyncExitStack()

    def __repr__(self) -> str:
        state = "serving" if self._server is not None else "closed"
        return f"<RemotingServer {state} {self._host}:{self._port}, {len(self.connections)} connections>"

    @property
    def address(self) -> Address:
        """The address that is bound, with the port that the system chose if 0 was asked for."""
        return self._host, self._port

    async def __aenter__(self) -> Self:
        """Bind the address.

        Raises:
            ConfigError: it cannot be bound.
        """
        if not 0 <= self._port <= _MAX_PORT:
            raise ConfigError(f"cannot listen on {self._host}:{self._port}: a port ends at {_MAX_PORT}")
        self.connections = Connections(self._clock, self._limits, first_kept_descriptor, self._events)
        async with AsyncExitStack() as stack:
            entrance = Entrance(self._connect, self._admission, self._clock, first_kept_descriptor, self._events)
            self._entrance = await stack.enter_async_context(entrance)
            loop = asyncio.get_running_loop()
            try:
                server = await loop.create_server(entrance.meet, self._host, self._port, backlog=ACCEPTED_AT_ONCE)
            except (OSError, UnicodeError) as error:
                raise _bind_failure(self._host, self._port, error) from error
            lengthen_backlog(server)
            self._server = server
            self._port = server.sockets[0].getsockname()[1]
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop listening and end every connection."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
            await self._stack.aclose()
            await self.connections.close_all()
            await server.wait_closed()

    def _connect(self) -> Connection:
        return Connection(self._handlers, self._clock, self._limits, self.connections)


def open_listener(host: str, port: int, *, key: str) -> socket.socket:
    """Return a socket that listens, for a server of HTTP; ``key`` is the setting to blame.

    What it accepts sends without Nagle's delay: of a socket that somebody else has bound, asyncio does not see to that.

    Raises:
        AddressInUseError: the port is taken.
        ConfigError: the address cannot be listened at.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
    except (OSError, UnicodeError) as error:
        raise _bind_failure(host, port, error, key) from error
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


class OnDemandPort:
    """A port that is bound, and whose server is made when the first peer knocks: until then it costs a socket.

    ``load`` imports what the server needs, on a thread, and returns what makes it over the listening socket, which is
    closed in the end. A server that cannot be made is told of in the log, and the port is closed.
    """

    def __init__(self, listener: socket.socket, load: Callable[[], "MakeServer"]) -> None:
        self._listener = listener
        self._load = load
        self._tasks = TaskScope()
        self._woken = asyncio.Event()
        self._stopping = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None
        self.address: Address = listener.getsockname()[:2]

    def __repr__(self) -> str:
        return f"<OnDemandPort {format_address(*self.address)}>"

    async def __aenter__(self) -> Self:
        """Wait for the first peer from now on."""
        await self._tasks.__aenter__()
        asyncio.get_running_loop().add_reader(self._listener.fileno(), self._wake)
        self._serving = self._tasks.start(self._serve(), f"serve {format_address(*self.address)}")
        return self

    async def __aexit__(self, *_: object) -> None:
        """Leave the server, if it was made, and close the port."""
        self._stopping.set()
        self._wake()
        assert self._serving is not None, "it was entered"
        await self._serving
        await self._tasks.__aexit__(None, None, None)

    def _wake(self) -> None:
        if not self._woken.is_set():
            asyncio.get_running_loop().remove_reader(self._listener.fileno())
            self._woken.set()

    async def _serve(self) -> None:
        try:
            await self._woken.wait()
            if self._stopping.is_set():
                return
            make = await asyncio.to_thread(self._load)
            async with make(self._listener):
                await self._stopping.wait()
        except Exception:  # the fault boundary of a port
            _log.exception("closing the port %s: it cannot be served", format_address(*self.address))
        finally:
            self._listener.close()


MakeServer = Callable[[socket.socket], AbstractAsyncContextManager[object]]


def _bind_failure(host: str, port: int, error: Exception, key: str = "bindAddress") -> ConfigError:
    where = format_address(host, port)
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return AddressInUseError(f"cannot listen on {where}: the address is in use", port=port)
    reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
    return ConfigError(f"cannot listen on {where}: {reason}", key=key)


FILE_DESCRIPTORS = 6_000
"""How many are kept for files; of a small limit, half. A store uses 4,608 at most (``store/opening.py``)."""


def first_kept_descriptor() -> int | None:
    """Return the lowest number that no connection may have; None without a limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft - min(soft // 2, FILE_DESCRIPTORS)
