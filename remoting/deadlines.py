"""Time limits of many waits at little cost.

Waits that end in the same millisecond share one timer of the clock; it is dropped when the last of them is over, which
is what nearly always happens. (``asyncio.timeout`` around each wait took a third of the time of a request.)
"""

import asyncio
from typing import Any

from ..common.clock import Clock, TimerHandle

Waiter = asyncio.Future[Any]


class Deadlines:
    """Ends waits with ``TimeoutError`` when their time is over."""

    __slots__ = ("_clock", "_timers", "_waiters")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiters: dict[int, set[Waiter]] = {}
        self._timers: dict[int, TimerHandle] = {}

    def __repr__(self) -> str:
        return f"<Deadlines {sum(map(len, self._waiters.values()))} waits, {len(self._timers)} timers>"

    def add(self, waiter: Waiter, timeout_ms: int) -> int:
        """Limit a wait; return the instant at which it ends, for ``discard``."""
        until_ms = self._clock.now_ms() + timeout_ms
        waiters = self._waiters.get(until_ms)
        if waiters is None:
            self._waiters[until_ms] = {waiter}
            self._timers[until_ms] = self._clock.call_at(until_ms, self._expire, until_ms)
        else:
            waiters.add(waiter)
        return until_ms

    def discard(self, waiter: Waiter, until_ms: int) -> None:
        """Forget a wait that is over."""
        waiters = self._waiters.get(until_ms)
        if waiters is not None:
            waiters.discard(waiter)
            if not waiters:
                del self._waiters[until_ms]
                self._timers.pop(until_ms).cancel()

    def _expire(self, until_ms: int) -> None:
        self._timers.pop(until_ms, None)
        for waiter in self._waiters.pop(until_ms, ()):
            if not waiter.done():
                waiter.set_exception(TimeoutError())
