"""The loop's clock keeps the promises of ``Clock``."""

import asyncio
import time

import pytest

from rocketlet.common.clock import Clock
from rocketlet.remoting.transport.event_loop import LoopClock


def test_loop_clock_is_a_clock():
    """A LoopClock can stand wherever a Clock is asked for, and shows wall time."""
    clock: Clock = LoopClock()
    assert abs(clock.now_ms() - time.time() * 1000) < 60_000


@pytest.mark.parametrize("delay_ms", [-5, 0, 1, 3])
async def test_call_is_made_once_its_instant_has_come(delay_ms: int):
    """A planned call never runs before its instant, and gets its arguments."""
    clock = LoopClock()
    ran: asyncio.Future[tuple[str, int]] = asyncio.get_running_loop().create_future()
    at_ms = clock.monotonic_ms() + delay_ms

    def note(name: str) -> None:
        ran.set_result((name, clock.monotonic_ms()))

    clock.call_at(at_ms, note, "planned")
    name, ran_at_ms = await ran
    assert name == "planned"
    assert ran_at_ms >= at_ms


async def test_cancelled_call_is_dropped():
    """A cancelled call does not run, though a later one does."""
    clock, ran = LoopClock(), list[str]()
    done = asyncio.Event()
    clock.call_at(clock.monotonic_ms(), ran.append, "cancelled").cancel()
    clock.call_at(clock.monotonic_ms() + 2, done.set)
    await done.wait()
    assert ran == []


async def test_timeout_ends_a_wait():
    """A block that waits too long raises TimeoutError; one that is done in time does not."""
    clock = LoopClock()
    with pytest.raises(TimeoutError):
        async with clock.timeout(1):
            await asyncio.Event().wait()
    async with clock.timeout(60_000):
        await clock.sleep(1)
