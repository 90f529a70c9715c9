"""The clock that every part takes as an argument.

Instants are epoch milliseconds of the wall clock (``now_ms``); deadlines are given as such instants too.
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

    def call_at(self, at_ms: int, callback: Callable[..., object], *args: object) -> TimerHandle:
        """Call ``callback(*args)`` on the loop once ``now_ms()`` has reached ``at_ms``."""
        ...

    async def sleep(self, delay_ms: int) -> None:
        """Wait until ``delay_ms`` have passed."""
        ...

    def timeout(self, delay_ms: int) -> AbstractAsyncContextManager[object]:
        """Return a block that raises ``TimeoutError`` once it has run for ``delay_ms``."""
        ...
