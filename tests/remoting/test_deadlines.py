"""Time limits of many waits."""

import asyncio

import pytest

from rocketlet.remoting.deadlines import Deadlines
from rocketlet.testing import ManualClock


def waiters(count: int) -> list["asyncio.Future[None]"]:
    """Return futures."""
    return [asyncio.get_running_loop().create_future() for _ in range(count)]


async def test_waits_end_at_their_own_time():
    """Those of one millisecond end together, neither earlier nor later."""
    clock = ManualClock()
    deadlines = Deadlines(clock)
    first, second, third = waiters(3)
    for waiter, timeout_ms in ((first, 1000), (second, 1000), (third, 1001)):
        deadlines.add(waiter, timeout_ms)

    clock.advance(999)
    assert not any(waiter.done() for waiter in (first, second, third))
    clock.advance(1)
    assert [waiter.done() for waiter in (first, second, third)] == [True, True, False]
    clock.advance(1)
    for waiter in (first, second, third):
        with pytest.raises(TimeoutError):
            await waiter


async def test_finished_waits_leave_no_timer():
    """A wait that is over is forgotten, and the timer with the last of its millisecond."""
    clock = ManualClock()
    deadlines = Deadlines(clock)
    first, second = waiters(2)
    until_ms = [deadlines.add(waiter, 1000) for waiter in (first, second)]

    deadlines.discard(first, until_ms[0])
    assert clock.next_at_ms == until_ms[0]
    deadlines.discard(second, until_ms[1])
    assert clock.next_at_ms is None
    deadlines.discard(second, until_ms[1])
    assert repr(deadlines) == "<Deadlines 0 waits, 0 timers>"


async def test_wait_that_got_its_answer_keeps_it():
    """An answer in the last millisecond wins."""
    clock = ManualClock()
    deadlines = Deadlines(clock)
    [waiter] = waiters(1)
    until_ms = deadlines.add(waiter, 0)
    waiter.set_result(None)
    clock.advance(1)
    await waiter
    deadlines.discard(waiter, until_ms)
