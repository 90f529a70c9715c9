"""How many mistakes of peers are logged, so that peers cannot fill a disk with them."""

import logging

from ...common.clock import Clock

MOST = 100
PERIOD_MS = 10_000
_log = logging.getLogger(__name__)


class Complaints:
    """Counts the mistakes of all peers of a server; in each period the first hundred may be logged."""

    __slots__ = ("_clock", "_count", "_until_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._count = 0
        self._until_ms = 0

    def __repr__(self) -> str:
        return f"<Complaints {self._count} until {self._until_ms}>"

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
