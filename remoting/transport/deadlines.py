"""Time limits of many waits at little cost.

There is one timer, for the earliest limit. It is not moved when that wait is over, which is what nearly always happens:
the timer finds nothing to do then and waits for the limit that is the earliest by then. With the last wait it is
dropped. (``asyncio.timeout`` around each wait took a third of the time of a request.)
"""

from collections.abc import Callable

from ...common.clock import Clock, TimerHandle


class Deadlines:
    """Calls ``expire(key)`` when the time of a wait is over; keys are unique."""

    __slots__ = ("_clock", "_expire", "_timer", "_timer_at_ms", "_waits")

    def __init__(self, clock: Clock, expire: Callable[[int], object]) -> None:
        self._clock = clock
        self._expire = expire
        self._waits: dict[int, set[int]] = {}
        self._timer: TimerHandle | None = None
        self._timer_at_ms = 0

    def __repr__(self) -> str:
        return f"<Deadlines {sum(map(len, self._waits.values()))} waits{'' if self._timer is None else ', a timer'}>"

    def add(self, key: int, timeout_ms: int) -> int:
        """Limit a wait; return the instant at which it ends, for ``discard``."""
        until_ms = self._clock.monotonic_ms() + timeout_ms
        keys = self._waits.get(until_ms)
        if keys is None:
            self._waits[until_ms] = {key}
            if self._timer is None or until_ms < self._timer_at_ms:
                self._set_timer(until_ms)
        else:
            keys.add(key)
        return until_ms

    def discard(self, key: int, until_ms: int) -> None:
        """Forget a wait that is over."""
        keys = self._waits.get(until_ms)
        if keys is not None:
            keys.discard(key)
            if not keys:
                del self._waits[until_ms]
                if not self._waits and self._timer is not None:
                    self._timer.cancel()
                    self._timer = None

    def _set_timer(self, at_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at_ms = self._clock.call_at(at_ms, self._wake), at_ms

    def _wake(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        for until_ms in [each for each in self._waits if each <= now_ms]:
            for key in self._waits.pop(until_ms, ()):
                self._expire(key)
        if self._waits and self._timer is None:
            self._set_timer(min(self._waits))
