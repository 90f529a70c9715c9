"""A clock that runs as the machine's does, and that a test moves on, stops and lets run again.

    advance, elapse, settle, set_wall_clock   as those of a ``ManualClock``, but for calls that plan themselves again:
                                              they run once at their instant and once more at the end of the way
    freeze()                                  time stands still until ``resume``; only ``advance`` moves it
    resume()                                  time goes on from where it stands

It is ahead of the machine's clock by what it was moved, and behind by what it stood still. The wall clock follows the
process's own time: somebody who sets the machine's clock is not noticed.
"""

import asyncio
import time
from collections.abc import Callable

from .manual_clock import ManualClock, PlannedCall


class MovableClock(ManualClock):
    """A ``ManualClock`` that also runs by itself; use it on one event loop only, the running one."""

    def __init__(self) -> None:
        super().__init__(time.time_ns() // 1_000_000, monotonic_ms=_machine_ms())
        self._lead_ms: int | None = 0  # before the machine's clock; None while it stands still
        self._is_moving = False
        self.was_moved = False
        """Whether it has ever been moved on, or stood still."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0

    @property
    def is_frozen(self) -> bool:
        """Whether only ``advance`` moves it."""
        return self._lead_ms is None

    @property
    def ahead_ms(self) -> int:
        """How far the wall clock is ahead of the machine's, 0 unless it was moved; below 0 when it has stood still."""
        return self.now_ms() - time.time_ns() // 1_000_000 if self.was_moved else 0

    def monotonic_ms(self) -> int:
        """Return the time that has passed, by the machine's clock and by what the test has moved."""
        if self._lead_ms is not None and not self._is_moving:
            self._monotonic_ms = max(self._monotonic_ms, _machine_ms() + self._lead_ms)
        return self._monotonic_ms

    def call_at(self, at_ms: int, callback: Callable[..., object], *args: object) -> PlannedCall:
        """Run ``callback(*args)`` once ``monotonic_ms()`` has reached ``at_ms``."""
        planned = super().call_at(at_ms, callback, *args)
        self._arm()
        return planned

    def advance(self, delay_ms: int) -> None:
        """Move on by ``delay_ms`` and run what becomes due."""
        self.was_moved = self.was_moved or delay_ms > 0
        super().advance(delay_ms)

    def freeze(self) -> None:
        """Let time stand still."""
        self.was_moved = True
        self.monotonic_ms()
        self._lead_ms = None
        self._disarm()

    def resume(self) -> None:
        """Let time go on."""
        if self._lead_ms is None:
            self._lead_ms = self._monotonic_ms - _machine_ms()
            self._arm()

    def return_to_machine(self) -> None:
        """Show the machine's time again and run; only this process's own time has passed."""
        self.resume()
        self.set_wall_clock(-self.ahead_ms)
        self.was_moved = False

    def leave_machine(self, ahead_ms: int, *, is_frozen: bool) -> None:
        """Show again what it showed before ``return_to_machine``."""
        if ahead_ms:
            self.set_wall_clock(ahead_ms)
            self.was_moved = True
        if is_frozen:
            self.freeze()

    def _move_to(self, at_ms: int) -> None:
        self._is_moving = True
        try:
            for due in list(iter(lambda: self._pop_due(at_ms), None)):
                self._monotonic_ms = max(self._monotonic_ms, due.at_ms)
                due.call()
            self._monotonic_ms = max(self._monotonic_ms, at_ms)
            super()._move_to(at_ms)
        finally:
            self._is_moving = False
            self._disarm()  # its instant has come nearer
            if self._lead_ms is not None:
                self._lead_ms = self._monotonic_ms - _machine_ms()
                self._arm()

    def _arm(self) -> None:
        """Have the loop come back when the next call is due."""
        next_at_ms = self._next_at()
        if self._lead_ms is None or self._is_moving or next_at_ms is None:
            return
        if self._timer is not None and self._timer_at_ms <= next_at_ms:
            return
        self._disarm()
        delay_ms = next_at_ms - self.monotonic_ms() + 1  # loops count whole milliseconds and may be one early
        self._timer = asyncio.get_running_loop().call_later(max(0, delay_ms) / 1000, self._run_due)
        self._timer_at_ms = next_at_ms

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run_due(self) -> None:
        self._timer = None
        self._move_to(self.monotonic_ms())


def _machine_ms() -> int:
    return time.monotonic_ns() // 1_000_000
