"""Connections to others, made when they are needed.

Rule 1: One connection per address; requests that come while it is being made wait for the same attempt.
Rule 2: An attempt belongs to the pool, so that a cancelled request takes nothing from the others.
Rule 3: A lost connection is forgotten; the next request makes a new one.

Upstream: ``NettyRemotingClient``.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, Self

from ...common.clock import Clock
from ...common.errors import ConnectFailedError, ConnectionClosedError, RequestTimeoutError
from ...common.ids import Address, is_address
from ..codec.command import Command
from .connection import Connection, RequestHandlers
from .connections import Connections
from .event_loop import TaskScope
from .limits import CLIENT_LIMITS, Limits

CONNECT_TIMEOUT_MS = 3_000
TLS_TIMEOUTS = {"ssl_handshake_timeout": 3.0, "ssl_shutdown_timeout": 1.0}  # seconds; a silent peer holds up no end
_CLOSED = "the connection pool is closed"


class ConnectionPool:
    """Sends requests to addresses (``"host:port"``), and serves what the other side asks on the same connections.

    ``sign`` puts into the fields of each who asks, where somebody wants to know.
    """

    def __init__(
        self,
        clock: Clock,
        handlers: RequestHandlers | None = None,
        limits: Limits | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        sign: Callable[[dict[str, str], bytes], None] | None = None,
    ) -> None:
        self._clock = clock
        self._sign = sign
        self._tls: dict[str, Any] = {} if tls is None else {"ssl": tls, **TLS_TIMEOUTS}
        self._handlers = handlers or RequestHandlers()
        self._limits = limits or CLIENT_LIMITS
        self.connections = Connections(clock, self._limits)
        self._open: dict[str, Connection] = {}
        self._attempts: dict[str, asyncio.Future[Connection | str]] = {}
        self._tasks = TaskScope()
        self._is_closed = True

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "open"
        return f"<ConnectionPool {state}, connected to {sorted(self._open)}, connecting to {sorted(self._attempts)}>"

    async def __aenter__(self) -> Self:
        """Open the pool; it connects when asked to."""
        self.connections = Connections(self._clock, self._limits)
        self._tasks = TaskScope()
        await self._tasks.__aenter__()
        self._is_closed = False
        return self

    async def __aexit__(self, *error: object) -> None:
        """End every connection and attempt; who still waits gets ``ConnectionClosedError``."""
        self._is_closed = True
        try:
            await self._tasks.__aexit__(*error)
        finally:
            for attempt in self._attempts.values():  # their tasks ended before they began
                attempt.set_result(_CLOSED)
            self._attempts.clear()
            await self.connections.close_all()

    async def request(self, address: str, command: Command, timeout_ms: int) -> Command:
        """Send a request, over a new connection if need be, and return the answer whatever its code.

        Raises:
            ConnectFailedError: no connection to the address.
            ConnectionClosedError: the connection ended, or the pool was closed, before the answer.
            RequestTimeoutError: connection and answer did not come in time.
        """
        if self._sign is not None:
            self._sign(command.ext, command.body)
        connection = self._open.get(address)
        if connection is not None:
            return await connection.request(command, timeout_ms)
        try:
            async with self._clock.timeout(timeout_ms):
                connection = await self.connect(address)
                return await connection.request(command, timeout_ms)
        except TimeoutError:
            raise RequestTimeoutError(f"{address} did not answer {command.code} in {timeout_ms} ms") from None

    async def oneway(self, address: str, command: Command) -> None:
        """Send a request that is not answered.

        Raises:
            ConnectFailedError: no connection to the address.
            ConnectionClosedError: the pool is closed.
        """
        if self._sign is not None:
            self._sign(command.ext, command.body)
        connection = self._open.get(address) or await self.connect(address)
        connection.send_oneway(command)

    async def connect(self, address: str) -> Connection:
        """Return the open connection to an address, after making it if need be.

        Raises:
            ConnectFailedError: there is none, and none could be made.
            ConnectionClosedError: the pool is closed.
        """
        if self._is_closed:
            raise ConnectionClosedError(_CLOSED)
        connection = self._open.get(address)
        if connection is not None:
            return connection
        attempt = self._attempts.get(address) or self._start_attempt(address)
        outcome = await asyncio.shield(attempt)
        if isinstance(outcome, Connection):
            return outcome
        if outcome is _CLOSED:
            raise ConnectionClosedError(_CLOSED)
        raise ConnectFailedError(outcome)

    def find(self, address: str) -> Connection | None:
        """Return the connection to an address if it is open."""
        return self._open.get(address)

    def close(self, address: str) -> None:
        """Close the connection to an address, if there is one; the next request makes a new one."""
        connection = self._open.pop(address, None)
        if connection is not None:
            connection.close()

    def _start_attempt(self, address: str) -> "asyncio.Future[Connection | str]":
        host, port = parse_address(address)
        attempt: asyncio.Future[Connection | str] = asyncio.get_running_loop().create_future()
        self._attempts[address] = attempt
        self._tasks.start(self._try_to_connect(address, (host, port), attempt), f"connect to {address}")
        return attempt

    async def _try_to_connect(self, address: str, target: Address, attempt: "asyncio.Future[Connection | str]") -> None:
        outcome: Connection | str = _CLOSED
        try:
            async with self._clock.timeout(CONNECT_TIMEOUT_MS):
                loop = asyncio.get_running_loop()
                _, outcome = await loop.create_connection(self._new_connection, *target, **self._tls)
            self._keep(address, outcome)
        except TimeoutError:
            outcome = f"cannot connect to {address}: no answer in {CONNECT_TIMEOUT_MS} ms"
        except (OSError, UnicodeError) as error:
            outcome = f"cannot connect to {address}: {str(error) or 'the peer closed the connection'}"
        finally:
            del self._attempts[address]
            attempt.set_result(outcome)

    def _new_connection(self) -> Connection:
        return Connection(self._handlers, self._clock, self._limits, self.connections)

    def _keep(self, address: str, connection: Connection) -> None:
        self._open[address] = connection
        connection.on_close(lambda ended: self._forget(address, ended))

    def _forget(self, address: str, connection: Connection) -> None:
        if self._open.get(address) is connection:
            del self._open[address]


def parse_address(address: str) -> Address:
    """Split ``host:port``; an IPv6 address may stand in brackets.

    Raises:
        ConnectFailedError: the text is no address.
    """
    if not is_address(address):
        raise ConnectFailedError(f"{address!r} is no host:port")
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)
