"""The rate at which messages may leave."""

import pytest
from eager_clock import EagerClock

from rocketlet.client.producer.bulk_sender import RateLimiter


@pytest.mark.parametrize(
    ("rate", "counts", "pauses"),
    [(10, [1, 1, 1], [100, 100]), (10, [20, 1], [2000]), (0.5, [1, 1], [2000]), (3, [1, 1, 1], [334, 333])],
)
async def test_messages_leave_evenly(rate: float, counts: list[int], pauses: list[int]) -> None:
    """Each step waits until those before it have used up their share of the seconds, in whole milliseconds."""
    clock = EagerClock()
    rate_limiter = RateLimiter(rate, clock)
    for count in counts:
        await rate_limiter.wait_turn(count)
    assert clock.pauses == pauses


async def test_long_pause_is_not_made_up_for() -> None:
    """After a second of silence ten messages still need a second."""
    clock = EagerClock()
    rate_limiter = RateLimiter(10, clock)
    clock.advance(1000)
    for _ in range(11):
        await rate_limiter.wait_turn(1)
    assert sum(clock.pauses) == 1000


@pytest.mark.parametrize(("rate", "most"), [(0.1, 1), (10, 1), (250, 25)])
def test_steps_are_a_tenth_of_a_second(rate: float, most: int) -> None:
    """So many messages may leave at once, never none."""
    assert RateLimiter(rate, EagerClock()).most_at_once == most
