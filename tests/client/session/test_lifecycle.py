"""A sleep that somebody may end early."""

import asyncio

from rocketlet.client.session.lifecycle import TimerEvent
from rocketlet.testing import ManualClock


async def test_wait_ends_at_its_time() -> None:
    """Without a call it takes the whole time."""
    clock = ManualClock()
    timer_event = TimerEvent(clock)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(timer_event.wait(1000))
        await clock.elapse(999)
        assert not waiting.done()
        await clock.elapse(1)
        assert waiting.done()


async def test_wake_ends_the_wait_once() -> None:
    """A call before or during a wait ends that one, not the next."""
    clock = ManualClock()
    timer_event = TimerEvent(clock)
    timer_event.wake()
    timer_event.wake()
    await timer_event.wait(1000)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(timer_event.wait(1000))
        await clock.settle()
        assert not waiting.done()
        timer_event.wake()
    assert clock.now_ms() == ManualClock().now_ms()
