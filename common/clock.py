"""The clock that every part takes as an argument.

    now_ms         the wall clock, in epoch milliseconds: what is stored and told; somebody may set it forward or back
    monotonic_ms   time of this process, from any origin: every deadline of the process, and ``call_at``

The two are moved apart by whoever sets the clock, and by a machine that sleeps: never compare one with the other.
``remoting.clock.LoopClock`` runs on the event loop, ``testing.ManualClock`` moves only when a test says so.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol


class TimerHandle(Protocol):
    """A planned call."""

    def cancel(self) -> None:
        """Drop the call; harmless when it has run."""
        ...


class Clock(Protocol):
    """Time as the parts of rocketlet see it."""

    def now_ms(self) -> int:
        """Return the wall clock time."""
        ...

    def monotonic_ms(self) -> int:
        """Return the time of this process, which never goes back."""
        ...

    def call_at(self, at_ms: int, callback: Callable[..., object], *args: object) -> TimerHandle:
        """Call ``callback(*args)`` on the loop once ``monotonic_ms()`` has reached ``at_ms``."""
        ...

    async def sleep(self, delay_ms: int) -> None:
        """Wait until ``delay_ms`` have passed."""
        ...

    def timeout(self, delay_ms: int) -> AbstractAsyncContextManager[object]:
        """Return a block that raises ``TimeoutError`` once it has run for ``delay_ms``."""
        ...
