"""The clock of tests."""

import asyncio
from collections.abc import Callable

import pytest

from rocketlet.common.clock import Clock
from rocketlet.testing import ManualClock

START_MS = 1_000_000


@pytest.fixture
def clock() -> ManualClock:
    """Return a clock that stands at ``START_MS``."""
    return ManualClock(START_MS, monotonic_ms=START_MS)


def test_manual_clock_is_a_clock(clock: ManualClock):
    """A ManualClock can stand wherever a Clock is asked for."""
    as_clock: Clock = clock
    assert as_clock.now_ms() == START_MS


def test_advance_runs_calls_by_instant_then_by_plan(clock: ManualClock):
    """Calls run by instant, those of one instant in the order of planning, and each sees its own instant."""
    seen: list[tuple[str, int]] = []

    def note(name: str) -> None:
        seen.append((name, clock.now_ms()))

    clock.call_at(START_MS + 20, note, "late")
    clock.call_at(START_MS + 10, note, "first")
    clock.call_at(START_MS + 10, note, "second")
    clock.call_at(START_MS + 31, note, "beyond")
    clock.advance(30)
    assert seen == [("first", START_MS + 10), ("second", START_MS + 10), ("late", START_MS + 20)]
    assert clock.now_ms() == START_MS + 30
    assert clock.next_at_ms == START_MS + 31


def test_advance_runs_calls_planned_on_the_way(clock: ManualClock):
    """A job that plans itself again runs as often as its interval fits."""
    runs: list[int] = []

    def job() -> None:
        runs.append(clock.now_ms() - START_MS)
        clock.call_at(clock.now_ms() + 10, job)

    clock.call_at(START_MS + 10, job)
    clock.advance(35)
    assert runs == [10, 20, 30]


def test_cancelled_call_does_not_run(clock: ManualClock):
    """A cancelled call is dropped, and cancelling one that has run is harmless."""
    runs: list[str] = []
    dropped = clock.call_at(START_MS + 1, runs.append, "dropped")
    kept = clock.call_at(START_MS + 1, runs.append, "kept")
    dropped.cancel()
    clock.advance(1)
    kept.cancel()
    assert runs == ["kept"]
    assert clock.next_at_ms is None


def test_advance_to_the_past_is_refused(clock: ManualClock):
    """Time does not move back."""
    with pytest.raises(ValueError, match="time only moves on: asked for 999999, it is 1000000"):
        clock.advance_to(START_MS - 1)


def test_advance_raises_what_a_call_raises(clock: ManualClock):
    """An error of a planned call reaches the test, and later calls stay planned."""
    runs: list[str] = []

    def fail() -> None:
        raise ValueError("planned to fail")

    clock.call_at(START_MS + 1, fail)
    clock.call_at(START_MS + 2, runs.append, "later")
    with pytest.raises(ValueError, match="planned to fail"):
        clock.advance(5)
    clock.advance(5)
    assert runs == ["later"]


def test_past_call_without_a_loop_waits_for_advance(clock: ManualClock):
    """Without a running loop a call planned for a past instant runs at the next advance."""
    runs: list[str] = []
    clock.call_at(START_MS - 5, runs.append, "past")
    assert runs == []
    clock.advance(0)
    assert runs == ["past"]
    assert clock.now_ms() == START_MS


async def test_past_call_on_a_loop_runs_soon(clock: ManualClock):
    """On a loop a call planned for a past instant runs on the next turn, not inside ``call_at``."""
    runs: list[str] = []
    clock.call_at(START_MS, runs.append, "due")
    assert runs == []
    await clock.settle()
    assert runs == ["due"]


async def test_sleep_ends_when_time_has_moved(clock: ManualClock):
    """A sleeper wakes once the clock has moved on by its delay, not earlier."""
    woken: list[int] = []

    async def sleeper(delay_ms: int) -> None:
        await clock.sleep(delay_ms)
        woken.append(delay_ms)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(sleeper(20))
        tasks.create_task(sleeper(10))
        await clock.settle()
        clock.advance(9)
        await clock.settle()
        assert woken == []
        clock.advance(1)
        await clock.settle()
        assert woken == [10]
        clock.advance(100)
    assert woken == [10, 20]


async def test_sleep_of_nothing_returns(clock: ManualClock):
    """Sleeping for zero or less needs no move of the clock."""
    await clock.sleep(0)
    await clock.sleep(-5)
    assert clock.now_ms() == START_MS


async def test_cancelled_sleep_leaves_nothing_planned(clock: ManualClock):
    """A cancelled sleeper takes its call with it."""
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(clock.sleep(10))
        await clock.settle()
        assert clock.next_at_ms == START_MS + 10
        task.cancel()
    assert clock.next_at_ms is None


async def test_elapse_lets_tasks_plan_again(clock: ManualClock):
    """A task that sleeps in a loop wakes at every interval within one ``elapse``."""
    woken: list[int] = []

    async def ticker() -> None:
        while True:
            await clock.sleep(10)
            woken.append(clock.now_ms() - START_MS)

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(ticker())
        await clock.elapse(35)
        task.cancel()
    assert woken == [10, 20, 30]
    assert clock.now_ms() == START_MS + 35


async def test_timeout_ends_the_block(clock: ManualClock):
    """The block raises TimeoutError when the clock has moved on, and the task is not left cancelled."""

    async def limited() -> str:
        try:
            async with clock.timeout(50):
                await clock.sleep(1_000)
        except TimeoutError:
            await asyncio.sleep(0)
            return "late"
        return "in time"

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(limited())
        await clock.elapse(49)
        assert not task.done()
        await clock.elapse(1)
        assert task.result() == "late"
    assert clock.next_at_ms is None


async def test_timeout_of_a_finished_block_is_dropped(clock: ManualClock):
    """A block that ends in time leaves nothing planned."""
    async with clock.timeout(50):
        await asyncio.sleep(0)
    assert clock.next_at_ms is None


async def test_timeout_passes_cancellation_on(clock: ManualClock):
    """Cancelling the task inside the block is a cancellation, not a TimeoutError."""

    async def limited() -> None:
        async with clock.timeout(50):
            await clock.sleep(1_000)

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(limited())
        await clock.settle()
        task.cancel()
    assert task.cancelled()


async def test_settle_waits_for_chains_of_tasks(clock: ManualClock):
    """``settle`` returns only after tasks that wake each other have come to rest."""
    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def hand_on(turns: int) -> None:
        loop.call_soon(hand_on, turns - 1) if turns else ended.set_result(None)

    async def chain(depth: int, start: Callable[[int], None]) -> None:
        if depth:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(chain(depth - 1, start))
        else:
            start(2)
            await ended

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(chain(10, hand_on))
        await clock.settle()
        assert task.done()


async def test_settle_gives_up_on_a_task_that_never_rests(clock: ManualClock, monkeypatch: pytest.MonkeyPatch):
    """A task that spins is an error of the test, not a hang."""
    monkeypatch.setattr("rocketlet.testing.manual_clock._MOST_TURNS", 50)

    async def spin() -> None:
        for _ in range(1_000):
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(spin())
        with pytest.raises(RuntimeError, match="a task still runs after 50 turns of the loop"):
            await clock.settle()
        task.cancel()


def test_repr_tells_the_state(clock: ManualClock):
    """The repr names the instant and what comes next."""
    clock.call_at(START_MS + 7, print)
    assert repr(clock) == "<ManualClock at 1000000, next call at 1000007>"
