"""A connection without a socket: what it writes is kept, and a test hands it the bytes of a read."""

import asyncio

from rocketlet.common.clock import Clock
from rocketlet.remoting.transport.connection import Connection, RequestHandlers
from rocketlet.remoting.transport.limits import Limits, LogRateLimiter, MemoryBudget


class _Home:
    """Keeps no connections."""

    def __init__(self, clock: Clock) -> None:
        self.held = MemoryBudget(Limits().max_held_bytes)
        self.complaints = LogRateLimiter(clock)

    def add(self, connection: Connection) -> None:
        """Do nothing."""

    def discard(self, connection: Connection, *, has_failed: bool = False) -> None:
        """Do nothing."""


class MemoryTransport(asyncio.Transport):
    """Takes what is written; ``unsent_bytes`` are said to be unsent. ``has_written`` is set by the first write."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 50_000), "sockname": ("127.0.0.1", 10_911)})
        self.last_write = b""
        self.unsent_bytes = 0
        self.has_written = asyncio.Event()
        self.is_over = False
        self.is_read = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Keep the bytes."""
        self.last_write = bytes(data)
        self.has_written.set()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: there is no buffer."""

    def get_write_buffer_size(self) -> int:
        """Return what the test says."""
        return self.unsent_bytes

    def is_closing(self) -> bool:
        """Return whether the test has said so, or the connection was closed."""
        return self.is_over

    def pause_reading(self) -> None:
        """Note that nothing is read."""
        self.is_read = False

    def resume_reading(self) -> None:
        """Note that reading goes on."""
        self.is_read = True

    def close(self) -> None:
        """Take nothing more."""
        self.is_over = True

    def abort(self) -> None:
        """Take nothing more."""
        self.is_over = True


def connect_in_memory(
    handlers: RequestHandlers, clock: Clock, transport: MemoryTransport | None = None
) -> tuple[Connection, MemoryTransport]:
    """Return a connection that is served, and its transport."""
    connection, transport = Connection(handlers, clock, Limits(), _Home(clock)), transport or MemoryTransport()
    connection.connection_made(transport)
    return connection, transport
