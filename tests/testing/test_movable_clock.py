"""The clock that runs by itself and is moved on."""

import asyncio

from rocketlet.common.clock import Clock
from rocketlet.testing.movable_clock import MovableClock


async def test_it_runs_by_itself() -> None:
    """What is planned happens without anybody moving the clock, in order."""
    clock: Clock = MovableClock()
    seen: list[str] = []
    later = asyncio.Event()
    now_ms = clock.monotonic_ms()
    clock.call_at(now_ms + 3, later.set)
    clock.call_at(now_ms + 1, seen.append, "sooner")
    clock.call_at(now_ms + 2, seen.append, "dropped").cancel()
    await later.wait()
    assert seen == ["sooner"]
    assert clock.monotonic_ms() >= now_ms + 3
    await clock.sleep(1)
    try:
        async with clock.timeout(1):
            await asyncio.Event().wait()
    except TimeoutError:
        seen.append("late")
    assert seen == ["sooner", "late"]


async def test_it_is_moved_on_and_runs_on_from_there() -> None:
    """After a move both clocks are ahead, and go on."""
    clock = MovableClock()
    wall_ms, began_ms = clock.now_ms(), clock.monotonic_ms()
    seen: list[int] = []
    clock.call_at(began_ms + 60_000, lambda: seen.append(clock.monotonic_ms() - began_ms))
    clock.advance(3_600_000)
    assert seen == [60_000]
    assert clock.now_ms() - wall_ms >= 3_600_000
    happened = asyncio.Event()
    clock.call_at(clock.monotonic_ms() + 1, happened.set)
    await happened.wait()


async def test_it_stands_still() -> None:
    """Frozen, it shows one instant, and nothing happens until it is moved or runs again."""
    clock = MovableClock()
    clock.freeze()
    at_ms, happened, moved = clock.monotonic_ms(), asyncio.Event(), asyncio.Event()
    clock.call_at(at_ms + 5, happened.set)
    clock.call_at(at_ms + 2, moved.set)
    machine = asyncio.Event()
    asyncio.get_running_loop().call_later(0.01, machine.set)
    await machine.wait()
    assert clock.monotonic_ms() == at_ms
    assert not moved.is_set()
    clock.advance(3)
    assert moved.is_set()
    assert not happened.is_set()
    clock.resume()
    await happened.wait()
    assert clock.monotonic_ms() >= at_ms + 5


async def test_calls_that_plan_themselves_come_once_and_once_more() -> None:
    """A job of every second runs at its instant and at the end of an hour, not 3,600 times."""
    clock = MovableClock()
    clock.freeze()
    began_ms, runs = clock.monotonic_ms(), list[int]()

    def job() -> None:
        runs.append(clock.monotonic_ms() - began_ms)
        clock.call_at(clock.monotonic_ms() + 1_000, job)

    clock.call_at(began_ms + 1_000, job)
    clock.advance(3_600_000)
    assert runs == [1_000, 3_600_000]
