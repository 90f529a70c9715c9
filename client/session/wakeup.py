"""A sleep that somebody may end early."""

import asyncio

from ...common.clock import Clock


class Wakeup:
    """Lets a job sleep until its time or until somebody wakes it, whichever comes first."""

    __slots__ = ("_clock", "_event")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._event = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Wakeup {'asked for' if self._event.is_set() else 'not asked for'}>"

    def wake(self) -> None:
        """End the wait that is under way, or the next one."""
        self._event.set()

    async def wait(self, at_most_ms: int) -> None:
        """Sleep; a call of ``wake`` since the last wait ends it at once."""
        try:
            async with self._clock.timeout(at_most_ms):
                await self._event.wait()
        except TimeoutError:
            pass
        self._event.clear()
