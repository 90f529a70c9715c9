"""The loop of a server or client: which it is, its clock, tasks that end with their owner, and jobs that go on."""

import asyncio
import itertools
import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from rocketlet.common.clock import Clock
from rocketlet.common.errors import StoreFullError
from rocketlet.remoting.transport.event_loop import (
    FIRST_PAUSE_MS,
    LONGEST_PAUSE_MS,
    LoopClock,
    TaskScope,
    find_loop_factory,
    repeat,
    wait_until_due,
)
from rocketlet.testing import ManualClock


def test_loop_is_uvloop():
    """Where uvloop can be imported, it makes the loop."""
    assert find_loop_factory() is uvloop.new_event_loop


def test_loop_falls_back_to_asyncio(monkeypatch: pytest.MonkeyPatch):
    """Without uvloop the runner makes asyncio's own loop."""
    monkeypatch.setitem(sys.modules, "uvloop", None)
    factory = find_loop_factory()
    assert factory is None
    with asyncio.Runner(loop_factory=factory) as runner:
        assert not isinstance(runner.get_loop(), uvloop.Loop)


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


def in_this_thread(replacement: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """Return what stands for a function in this thread alone: a broker of other tests may run in another one."""
    thread = threading.get_ident()

    def call(*arguments: Any) -> Any:
        return (replacement if threading.get_ident() == thread else original)(*arguments)

    return call


async def test_call_is_not_put_off(monkeypatch: pytest.MonkeyPatch):
    """The loop is asked to wait for the instant and a millisecond at most, which is how early it may be."""
    asked: list[float] = []
    clock, loop = LoopClock(), asyncio.get_running_loop()
    monkeypatch.setattr(clock, "monotonic_ms", lambda: 1000)
    monkeypatch.setattr(asyncio, "get_running_loop", in_this_thread(lambda: _Loop(asked), asyncio.get_running_loop))
    for at_ms in (1500, 1000, 500):
        clock.call_at(at_ms, loop.stop)
    assert asked == [0.501, 0.001, 0]


async def test_sleep_lasts_as_long_as_it_says(monkeypatch: pytest.MonkeyPatch):
    """Milliseconds are asked of the loop as its seconds."""
    asked: list[float] = []

    async def sleep(delay: float) -> None:
        asked.append(delay)

    monkeypatch.setattr(asyncio, "sleep", in_this_thread(sleep, asyncio.sleep))
    await LoopClock().sleep(250)
    assert asked == [0.25]


class _Loop:
    def __init__(self, asked: list[float]) -> None:
        self._asked = asked

    def call_later(self, delay: float, *_: object) -> None:
        self._asked.append(delay)


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


async def test_scope_ends_its_tasks():
    """Leaving the scope cancels what still runs and waits until it has cleaned up."""
    cleaned: list[str] = []

    async def wait_forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append("cleaned")

    async with TaskScope() as tasks:
        tasks.start(wait_forever(), "waits")
        await asyncio.sleep(0)
        assert repr(tasks) == "<TaskScope 1 tasks>"
    assert cleaned == ["cleaned"]
    assert repr(tasks) == "<TaskScope 0 tasks>"


async def test_error_in_the_block_passes_the_scope():
    """An error of the block itself comes out as it is."""

    async def fail() -> None:
        async with TaskScope() as tasks:
            tasks.start(asyncio.Event().wait(), "waits")
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await fail()


async def test_job_is_repeated_as_it_asks():
    """A job runs after its first delay, then after each delay that it returns, and ends with None."""
    manual, runs = ManualClock(), list[int]()
    start_ms = manual.now_ms()
    pauses = iter((100, 0, 1, -5, None))

    async def job() -> int | None:
        runs.append(manual.now_ms() - start_ms)
        return next(pauses)

    async with TaskScope() as tasks:
        done = tasks.start(repeat(job, manual, first_ms=50), "job")
        await manual.elapse(1000)
        assert done.done()
    assert runs == [50, 150, 150, 151, 151]


async def test_pauses_begin_anew_after_a_success():
    """A job that failed and then went well is tried again soon when it fails once more."""
    manual, runs = ManualClock(), list[int]()
    start_ms = manual.now_ms()
    outcomes = iter((StoreFullError("full"), StoreFullError("full"), 5, StoreFullError("full"), None))

    async def job() -> int | None:
        runs.append(manual.now_ms() - start_ms)
        outcome = next(outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async with TaskScope() as tasks:
        tasks.start(repeat(job, manual), "job")
        await manual.elapse(10_000)
    assert runs == [0, 1000, 3000, 3005, 4005]


async def test_wait_ends_with_its_event_or_its_time():
    """A wait looks each second at the time that is left, which may have changed; without a limit the event ends it."""
    manual, left = ManualClock(), {"ms": 2500}
    asked: list[int] = []

    def left_ms() -> int:
        asked.append(manual.monotonic_ms() - start_ms)
        return left["ms"] - asked[-1]

    start_ms = manual.monotonic_ms()
    async with TaskScope() as tasks:
        due = tasks.start(wait_until_due(asyncio.Event(), left_ms, manual), "due")
        await manual.elapse(1500)
        left["ms"] = 2700
        await manual.elapse(1199)
        assert not due.done()
        await manual.elapse(1)
        assert due.done()
        assert asked == [0, 1000, 2000, 2700]
        event = asyncio.Event()
        for wait in (lambda: None, lambda: 60_000):
            event.clear()
            waiting = tasks.start(wait_until_due(event, wait, manual), "event")
            await manual.elapse(5_000)
            assert not waiting.done()
            event.set()
            await waiting


@pytest.mark.parametrize(
    ("error", "has_traceback"), [(StoreFullError("full"), False), (OSError("gone"), False), (RuntimeError("bug"), True)]
)
async def test_failing_job_goes_on_with_growing_pauses(
    error: Exception, has_traceback: bool, caplog: pytest.LogCaptureFixture
):
    """A failing job is tried again after pauses that double up to a limit; each failure is logged."""
    manual, runs = ManualClock(), list[int]()

    async def job() -> int | None:
        runs.append(manual.now_ms())
        if len(runs) < 10:
            raise error
        return None

    async with TaskScope() as tasks:
        done = tasks.start(repeat(job, manual), "job")
        await manual.elapse(10 * LONGEST_PAUSE_MS)
        assert done.done()
    pauses = [later - earlier for earlier, later in itertools.pairwise(runs)]
    assert pauses == [min(FIRST_PAUSE_MS << number, LONGEST_PAUSE_MS) for number in range(9)]
    failures = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [bool(record.exc_info) for record in failures] == [has_traceback] * 9
