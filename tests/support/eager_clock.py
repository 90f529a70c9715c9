"""A clock that jumps to the end of every pause at once, and remembers how long they were."""

import asyncio

from rocketlet.testing import ManualClock


class EagerClock(ManualClock):
    """Time passes only while somebody sleeps, and then at once."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[int] = []

    async def sleep(self, delay_ms: int) -> None:
        """Move on."""
        self.pauses.append(delay_ms)
        self.advance(delay_ms)
        await asyncio.sleep(0)
