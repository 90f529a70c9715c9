"""What the peers of one server may cost: bytes held for them, and lines in the log.

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

from ...common.clock import Clock

if TYPE_CHECKING:
    from .connection import Connection

MOST = 100
PERIOD_MS = 10_000
_log = logging.getLogger(__name__)


class LogRateLimiter:
    """Counts the mistakes of all peers of a server; in each period the first hundred may be logged."""

    __slots__ = ("_clock", "_count", "_until_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._count = 0
        self._until_ms = 0

    def __repr__(self) -> str:
        return f"<LogRateLimiter {self._count} until {self._until_ms}>"

    def may_log(self) -> bool:
        """Count a mistake and tell whether to log it; the first that is not logged is told of."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._until_ms:
            self._count, self._until_ms = 0, now_ms + PERIOD_MS
        self._count += 1
        if self._count == MOST + 1:
            text = "%d requests refused within %d ms: logging no more of them for %d ms"
            _log.warning(text, self._count, PERIOD_MS, self._until_ms - now_ms)
        return self._count <= MOST


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

    def discard(self, connection: Connection) -> None:
        """Forget a connection that has ended."""
        ...
