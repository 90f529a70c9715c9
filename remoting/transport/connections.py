"""The open connections of a server or a client.

One timer looks after all of them, every twelfth of the idle limit while there are any: a connection on which nothing
came or went since the last look grows older, one that is older than the limit is closed. So a read costs one
assignment, and a silent connection ends between 12/12 and 13/12 of the limit. Bytes that a peer does not take have not
gone. Upstream: ``IdleStateHandler``, 120 s.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator

from msgspec import Struct

from ...common.clock import Clock, TimerHandle
from ...common.ids import format_address
from .connection import Connection
from .limits import Limits, LogRateLimiter, MemoryBudget

_LOOKS_PER_LIMIT = 12
_log = logging.getLogger(__name__)


def _admit_all() -> None:
    """Name no descriptor that a connection may not have."""


class ConnectionEvents(Struct):
    """How many connections were opened, have ended, have ended by an error, and were closed because they were idle."""

    opened: int = 0
    ended: int = 0
    failed: int = 0
    idle: int = 0


class Connections:
    """Knows every open connection, closes idle ones, ends all.

    ``first_kept`` names the lowest descriptor that a connection may not have, if there is one. What happens is counted
    in ``events``.
    """

    def __init__(
        self,
        clock: Clock,
        limits: Limits,
        first_kept: Callable[[], int | None] = _admit_all,
        events: ConnectionEvents | None = None,
    ) -> None:
        self._clock = clock
        self._idle_ms = limits.idle_ms
        self._first_kept = first_kept
        self._events = events or ConnectionEvents()
        self.held = MemoryBudget(limits.max_held_bytes)
        self.complaints = LogRateLimiter(clock)
        self._quiet_since_ms: dict[Connection, int] = {}
        self._timer: TimerHandle | None = None
        self._is_over = False
        self._waiting_for_end: list[asyncio.Future[None]] = []

    def __len__(self) -> int:
        return len(self._quiet_since_ms)

    def __iter__(self) -> Iterator[Connection]:
        return iter(list(self._quiet_since_ms))

    def add(self, connection: Connection) -> None:
        """Take a connection that has just opened."""
        self._events.opened += 1
        self._quiet_since_ms[connection] = self._clock.monotonic_ms()
        if self._is_over:
            connection.abort()  # accepted just before the end
            return
        if self._timer is None:
            self._plan_look()
        kept = self._first_kept()
        if kept is not None and connection.descriptor >= kept:
            self._refuse(connection, kept)

    def discard(self, connection: Connection, *, has_failed: bool = False) -> None:
        """Forget a connection that has ended."""
        self._events.ended += 1
        self._events.failed += has_failed
        self._quiet_since_ms.pop(connection, None)
        self.held.forget(connection)
        if not self._quiet_since_ms:
            self._stop_looking()
            waiting, self._waiting_for_end = self._waiting_for_end, []
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_result(None)

    async def close_all(self) -> None:
        """Close every connection, and those still to come, and wait for the last to end.

        What a peer does not read at once is lost.
        """
        self._is_over = True
        for connection in self:
            connection.close()
        await asyncio.sleep(0)  # one turn of the loop to send what was written last
        for connection in self:
            connection.abort()
        while self._quiet_since_ms:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting_for_end.append(waiter)
            await waiter

    def _refuse(self, connection: Connection, kept: int) -> None:
        if self.complaints.may_log():
            number = connection.descriptor
            peer = format_address(*connection.remote_address)
            text = (
                "rejecting the connection from %s: too many open files (descriptor %d, the store keeps those from %d)"
            )
            _log.warning(text, peer, number, kept)
        connection.abort()

    def _plan_look(self) -> None:
        at_ms = self._clock.monotonic_ms() + max(1, self._idle_ms // _LOOKS_PER_LIMIT)
        self._timer = self._clock.call_at(at_ms, self._look)

    def _stop_looking(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        now_ms = self._clock.monotonic_ms()
        for connection, quiet_since_ms in list(self._quiet_since_ms.items()):
            if connection.has_moved():
                self._quiet_since_ms[connection] = now_ms
            elif now_ms - quiet_since_ms >= self._idle_ms:
                peer = format_address(*connection.remote_address)
                _log.info("closing the connection to %s: idle for %d ms", peer, now_ms - quiet_since_ms)
                self._events.idle += 1
                connection.abort()
        self._plan_look()


class WatchedConnections:
    """Connections whose owner is told once when one of them has ended, however often it was added."""

    def __init__(self, on_lost: Callable[[Connection], object]) -> None:
        self._on_lost = on_lost
        self._watched: set[Connection] = set()

    def add(self, connection: Connection) -> None:
        """Watch a connection."""
        if connection not in self._watched:
            self._watched.add(connection)
            connection.on_close(self._lose)

    def _lose(self, connection: Connection) -> None:
        self._watched.discard(connection)
        self._on_lost(connection)
