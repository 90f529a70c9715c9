"""What peers may cost: bytes held for one of them and for all of a server together, and lines in the log.

``Limits`` are the numbers, ``MemoryBudget`` and ``LogRateLimiter`` keep to them.

Rules
    1. A connection that holds little is not counted; it tells when it begins to hold much (``COUNTED_BYTES``, or more
       unsent than the high-water mark), while it does, and when that is over. Held are answers that the peer does not
       read, frames that it does not finish, and requests whose answers it waits for.
    2. When all of them together hold more than the limit, the one that holds most is cut off, until they hold less.
    3. What was told may be out of date, never too little by more than one read; so all are asked again before one is
       cut off.
    4. Mistakes of peers are logged up to a number in each period, so that peers cannot fill a disk with them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from ...common.clock import Clock
from ...common.errors import ConfigError
from ..codec.frames import MAX_FRAME_BYTES

if TYPE_CHECKING:
    from .connection import Connection

MOST = 100
PERIOD_MS = 10_000
_log = logging.getLogger(__name__)


class Limits(Struct, frozen=True):
    """How much one connection may hold, and all of a server together.

    Above ``high_water_bytes`` of unsent answers nothing more is read until they fell to ``low_water_bytes``; answers
    that were owed add to that, and above ``max_unsent_bytes`` the connection is closed. When all connections together
    hold more than ``max_held_bytes``, the one that holds most is closed (``MemoryBudget``).

    A client ``reads_on`` whatever is unsent: its requests wait there, and with neither end reading both would wait for
    ever.
    """

    max_frame_bytes: int = MAX_FRAME_BYTES
    high_water_bytes: int = 1 << 18
    low_water_bytes: int = 1 << 16
    max_unsent_bytes: int = 64 << 20
    max_held_bytes: int = 1 << 30
    max_owed_answers: int = 16_384
    max_calls: int = 65_536
    idle_ms: int = 120_000
    reads_on: bool = False


CLIENT_LIMITS = Limits(max_unsent_bytes=1 << 30, reads_on=True)


def server_limits(idle_seconds: int, high_water_bytes: int, low_water_bytes: int) -> Limits:
    """Return the limits that settings ask for; as in Java, the marks count if both are given.

    Raises:
        ConfigError: the low mark is above the high one.
    """
    if low_water_bytes > high_water_bytes > 0:
        key = "writeBufferLowWaterMark"
        raise ConfigError(f"{key} is {low_water_bytes}, above writeBufferHighWaterMark={high_water_bytes}", key=key)
    if not (high_water_bytes and low_water_bytes):
        return Limits(idle_ms=1000 * idle_seconds)
    return Limits(high_water_bytes=high_water_bytes, low_water_bytes=low_water_bytes, idle_ms=1000 * idle_seconds)


class LogRateLimiter:
    """Counts mistakes of all peers of a server, or ``what`` they do; the first ``most`` of a period may be logged."""

    __slots__ = ("_clock", "_count", "_most", "_until_ms", "_what")

    def __init__(self, clock: Clock, what: str = "requests refused", most: int = MOST) -> None:
        self._clock = clock
        self._what = what
        self._most = most
        self._count = 0
        self._until_ms = clock.monotonic_ms()

    def __repr__(self) -> str:
        return f"<LogRateLimiter {self._count} until {self._until_ms}>"

    def may_log(self) -> bool:
        """Count a mistake and tell whether to log it; the first that is not logged is told of."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._until_ms:
            self._count, self._until_ms = 0, now_ms + PERIOD_MS
        self._count += 1
        if self._count == self._most + 1:
            text = "%d %s within %d ms: logging no more of them for %d ms"
            _log.warning(text, self._count, self._what, PERIOD_MS, self._until_ms - now_ms)
        return self._count <= self._most


COUNTED_BYTES = 1 << 16


class Holder(Protocol):
    """Who holds bytes for a peer; a connection."""

    @property
    def held_bytes(self) -> int:
        """How much it holds now."""
        ...

    def cut_off(self, reason: str) -> None:
        """End it at once."""
        ...


class MemoryBudget:
    """The holders of one server that hold much."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sizes: dict[Holder, int] = {}
        self.total = 0

    def __repr__(self) -> str:
        return f"<MemoryBudget {self.total} of {self._limit} by {len(self._sizes)} holders>"

    def __len__(self) -> int:
        return len(self._sizes)

    def note(self, holder: Holder) -> None:
        """Take in how much a holder holds now, and cut off who holds most if that is too much."""
        self._measure(holder)
        if self.total > self._limit:
            self._make_room()

    def forget(self, holder: Holder) -> None:
        """Count a holder no longer: it holds little, or has ended."""
        self.total -= self._sizes.pop(holder, 0)

    def _measure(self, holder: Holder) -> None:
        size = holder.held_bytes
        self.total += size - self._sizes.get(holder, 0)
        self._sizes[holder] = size

    def _make_room(self) -> None:
        for holder in self._sizes:
            self._measure(holder)
        while self.total > self._limit:
            largest = max(self._sizes, key=self._sizes.__getitem__)
            size, total = self._sizes[largest], self.total
            self.forget(largest)
            largest.cut_off(f"{size} of {total} bytes that are held for all peers, limit is {self._limit}")


class ConnectionRegistry(Protocol):
    """Keeps connections; ``Connections`` is the real one."""

    held: MemoryBudget
    complaints: LogRateLimiter

    def add(self, connection: Connection) -> None:
        """Take a connection that has just opened."""
        ...

    def discard(self, connection: Connection, *, has_failed: bool = False) -> None:
        """Forget a connection that has ended."""
        ...
