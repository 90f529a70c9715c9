"""How many messages a second may leave, at most.

Messages leave at an even pace: each takes its share of the second after the one before it, and a pause that was longer
than needed is not made up for, so that no second sees more than the limit.

    10 a second, 20 at once at 0 ms    they leave at 0 ms, and whoever comes next waits until 2,000 ms
"""

from ...common.clock import Clock


class Pace:
    """Lets messages pass at a limited rate."""

    def __init__(self, messages_per_second: float, clock: Clock) -> None:
        self._share_ms = 1000 / messages_per_second
        self._clock = clock
        self._free_at_ms = 0.0

    def __repr__(self) -> str:
        return f"<Pace {1000 / self._share_ms:g} messages a second>"

    @property
    def most_at_once(self) -> int:
        """How many messages pass in a tenth of a second, at least one: larger steps would not be even."""
        return max(1, int(100 / self._share_ms))

    async def wait_turn(self, count: int) -> None:
        """Wait until so many messages may leave."""
        now_ms = self._clock.monotonic_ms()
        leaving_at_ms = max(self._free_at_ms, now_ms)
        self._free_at_ms = leaving_at_ms + count * self._share_ms
        if leaving_at_ms > now_ms:
            await self._clock.sleep(-int(-(leaving_at_ms - now_ms) // 1))
