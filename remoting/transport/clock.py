"""The clock of a running event loop: real time."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager


class LoopClock:
    """A ``Clock`` whose timers are those of the running loop."""

    def __repr__(self) -> str:
        return f"<LoopClock at {self.now_ms()}>"

    def now_ms(self) -> int:
        """Return the wall clock time."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Return the time of this process, which never goes back."""
        return time.monotonic_ns() // 1_000_000

    def call_at(self, at_ms: int, callback: Callable[..., object], *args: object) -> asyncio.TimerHandle:
        """Call ``callback(*args)`` on the loop once ``monotonic_ms()`` has reached ``at_ms``."""
        delay_ms = at_ms - self.monotonic_ms() + 1  # loops count whole milliseconds and may be one early
        return asyncio.get_running_loop().call_later(max(0, delay_ms) / 1000, callback, *args)

    async def sleep(self, delay_ms: int) -> None:
        """Wait until ``delay_ms`` have passed."""
        await asyncio.sleep(delay_ms / 1000)

    def timeout(self, delay_ms: int) -> AbstractAsyncContextManager[asyncio.Timeout]:
        """Return a block that raises ``TimeoutError`` once it has run for ``delay_ms``."""
        return asyncio.timeout(delay_ms / 1000)
