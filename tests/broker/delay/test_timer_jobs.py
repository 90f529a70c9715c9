"""The timed jobs of timer messages."""

import asyncio
import logging
import pathlib
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack

import pytest
from raw_calls import TIMEOUT_MS, until
from stores import LimitedFiles, StoreDirectory, new_record
from timers import HOUR_MS, SECOND_MS, timer_directory

from rocketlet.broker.delay.timer_delivery import TimerDelivery
from rocketlet.broker.delay.timer_jobs import TimerJob, TimerSaveJob, start_timers
from rocketlet.broker.delay.timer_messages import TimerRequests
from rocketlet.remoting.transport.event_loop import LoopClock, TaskScope
from rocketlet.store.files.files import OS_FILES
from rocketlet.store.message_store import MessageStore
from rocketlet.store.timer.timer_check import load_timer_check
from rocketlet.testing.manual_clock import ManualClock

RETRY_MS = 1_000


class RunningTimers:
    """Jobs on a store, under a clock that the test moves."""

    def __init__(self, store: MessageStore, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        self.timers = store.timers()
        self.delivery = TimerDelivery(store, self.timers, store.commit, clock.now_ms)
        self.requests = TimerRequests(store.config.timers, self.timers.count_at, self.timers.ahead_ms)

    def send(self, body: bytes, ahead_ms: int) -> None:
        """Store a timer message and tell of it."""
        properties = {"TIMER_DELAY_MS": str(ahead_ms), "UNIQ_KEY": body.decode()}
        new = new_record("T", 0, body, **properties)
        placed = self.store.append(self.requests.rewrite(new, self.clock.now_ms()) or new)
        self.store.commit()
        self.delivery.arrived(placed)

    async def wait_put(self, count: int) -> None:
        """Wait until so many messages are in the wheel."""
        await until(lambda: self.timers.queue_offset >= count)

    async def pass_to_idle(self, count: int) -> None:
        """Let time pass until so many messages are saved, and the pause behind that is over."""
        await until(lambda: self.timers.saved.queue_offset >= count)
        await self.clock.elapse(2 * SECOND_MS)

    async def wait_delivered(self, count: int) -> None:
        """Wait until so many have come."""
        await until(lambda: self.store.max_offset("T", 0) >= count)


@pytest.fixture
def directory(tmp_path: pathlib.Path) -> StoreDirectory:
    """Return a directory with small timer files."""
    return timer_directory(tmp_path / "store")


@pytest.fixture
def disk() -> LimitedFiles:
    """Return a disk that can be full or fail."""
    return LimitedFiles()


@pytest.fixture
def clock() -> ManualClock:
    """Return a clock that stands until the test moves it."""
    return ManualClock()


@pytest.fixture
async def running(directory: StoreDirectory, disk: LimitedFiles, clock: ManualClock) -> AsyncGenerator[RunningTimers]:
    """Run the jobs of a store."""
    directory.now_ms = clock.now_ms()
    store = await asyncio.to_thread(directory.open, disk)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(asyncio.to_thread, directory.close_all)
        tasks = await stack.enter_async_context(TaskScope())
        made = RunningTimers(store, clock)
        start_timers(stack, tasks, clock, made.delivery)
        yield made


async def test_job_sleeps_until_the_next_slot(running: RunningTimers, clock: ManualClock) -> None:
    """Between messages there is one timer, to look at the clock each second, and none at all without messages."""
    await clock.settle()
    assert _deadlines(clock) == set()
    running.send(b"later", HOUR_MS)
    await running.wait_put(1)
    await running.pass_to_idle(1)
    assert _deadlines(clock) == {clock.monotonic_ms() + SECOND_MS}
    running.send(b"sooner", 10 * SECOND_MS)
    await running.wait_put(2)
    await running.pass_to_idle(2)
    assert _deadlines(clock) == {clock.monotonic_ms() + SECOND_MS}
    await clock.elapse(20 * SECOND_MS)
    await running.wait_delivered(1)
    await clock.elapse(HOUR_MS)
    await running.wait_delivered(2)


def _deadlines(clock: ManualClock) -> set[int]:
    """Return when something is planned for."""
    calls = clock._calls  # pyright: ignore[reportPrivateUsage] # what is planned is nobody else's business
    return {call.at_ms for *_, call in calls if not call.is_cancelled}


async def test_progress_is_saved_when_it_has_changed(
    running: RunningTimers, directory: StoreDirectory, clock: ManualClock
) -> None:
    """After timerFlushIntervalMs the file names the messages that are in the wheel; without a change it stays."""
    path = directory.root / "config" / "timercheck"
    running.send(b"1", HOUR_MS)
    await running.wait_put(1)
    await clock.elapse(SECOND_MS)
    await until(lambda: running.timers.saved.queue_offset == 1)  # pyright: ignore[reportPrivateUsage] # to wait for
    saved = await asyncio.to_thread(path.read_bytes)
    check = await asyncio.to_thread(load_timer_check, OS_FILES, str(path))
    assert check is not None
    assert check.sure_queue_offset == 1
    await clock.elapse(60 * SECOND_MS)
    assert await asyncio.to_thread(path.read_bytes) == saved


async def test_end_saves_and_delivers_nothing_more(
    directory: StoreDirectory, disk: LimitedFiles, clock: ManualClock
) -> None:
    """What was put since the last save is known to the next start; what falls due meanwhile is left to it."""
    directory.now_ms = clock.now_ms()
    store = await asyncio.to_thread(directory.open, disk)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(asyncio.to_thread, directory.close_all)
        tasks = await stack.enter_async_context(TaskScope())
        made = RunningTimers(store, clock)
        start_timers(stack, tasks, clock, made.delivery)
        made.send(b"1", HOUR_MS)
        await made.wait_put(1)
        made.send(b"2", HOUR_MS)
        clock.advance(2 * HOUR_MS)
    check = await asyncio.to_thread(load_timer_check, OS_FILES, str(directory.root / "config" / "timercheck"))
    assert check is not None
    assert check.sure_queue_offset == 2
    again = await asyncio.to_thread(directory.open)
    assert again.max_offset("T", 0) == 0
    await asyncio.to_thread(directory.close_all)


async def test_full_store_is_told_once(
    running: RunningTimers, disk: LimitedFiles, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """While the store takes nothing it is tried every second, with one line; then the messages come."""
    for number in range(3):
        running.send(b"%d" % number, 5 * SECOND_MS)
    await running.wait_put(3)
    disk.room = 0
    with caplog.at_level(logging.WARNING, "rocketlet.broker.delay.timer_jobs"):
        await clock.elapse(6 * SECOND_MS)
        await until(lambda: "the store rejects writes" in caplog.text)
        for _ in range(5):
            await clock.elapse(RETRY_MS)
    assert caplog.text.count("the store rejects writes") == 1
    disk.room = None
    await clock.elapse(2 * RETRY_MS)
    await running.wait_delivered(3)
    assert running.store.max_offset("T", 0) == 3


@pytest.fixture
async def waiting(directory: StoreDirectory, disk: LimitedFiles, clock: ManualClock) -> AsyncGenerator[RunningTimers]:
    """Give timers without jobs, with a message that is not saved."""
    directory.now_ms = clock.now_ms()
    made = RunningTimers(await asyncio.to_thread(directory.open, disk), clock)
    made.send(b"1", HOUR_MS)
    await asyncio.to_thread(_work, made.delivery)
    yield made
    made.timers.close()
    await asyncio.to_thread(directory.close_all)


async def test_save_that_finds_no_room_is_tried_again(waiting: RunningTimers, disk: LimitedFiles) -> None:
    """What the disk did not take is part of the next save; at the end of a broker it is logged."""
    with ThreadPoolExecutor(1) as worker:
        saving = TimerSaveJob(waiting.store, waiting.timers, worker)
        disk.room = 0
        with pytest.raises(OSError, match="No space"):
            await saving.save()
        await saving.save_last()
        disk.room = None
        await saving.save()
    assert waiting.timers.take_save() is None


async def test_nothing_is_saved_after_a_failed_flush(
    waiting: RunningTimers, disk: LimitedFiles, directory: StoreDirectory
) -> None:
    """Who knows what the disk has: the next start goes on from the last save that was done."""
    path = str(directory.root / "config" / "timercheck")
    await asyncio.to_thread(waiting.store.flush)
    with ThreadPoolExecutor(1) as worker:
        saving = TimerSaveJob(waiting.store, waiting.timers, worker)
        disk.fails_sync = True
        with pytest.raises(OSError, match="Input/output"):
            await saving.save()
        disk.fails_sync = False
        await saving.save()
    assert await asyncio.to_thread(load_timer_check, OS_FILES, path) is None


def _work(delivery: TimerDelivery) -> None:
    while not delivery.is_idle:
        slow = delivery.advance()
        if slow is not None:
            slow()


async def test_end_puts_what_has_arrived(waiting: RunningTimers, clock: ManualClock) -> None:
    """What nobody has looked at yet is in the wheel when the jobs have ended; what is due is left to the next start."""
    for number in range(100):
        waiting.send(b"more %d" % number, HOUR_MS)
    clock.advance(2 * HOUR_MS)
    with ThreadPoolExecutor(1) as worker:
        job = TimerJob(waiting.delivery, worker, clock)
        job.stop()
        await job.put_rest()
    assert (waiting.timers.queue_offset, waiting.store.max_offset("T", 0)) == (101, 0)


async def test_files_of_the_timer_log_follow_the_log(
    running: RunningTimers, directory: StoreDirectory, clock: ManualClock
) -> None:
    """When the log has lost files, those of the timer log that lead there go with the next save."""
    folder = directory.root / "timerlog"
    for number in range(50):
        running.send(b"%d" % number, HOUR_MS)
    await running.wait_put(50)
    await clock.elapse(SECOND_MS)
    assert len(await asyncio.to_thread(lambda: list(folder.iterdir()))) == 3
    log = running.store._log  # pyright: ignore[reportPrivateUsage] # as if its files had been deleted
    log.min_offset = running.store.log_max_offset
    async with LoopClock().timeout(TIMEOUT_MS):  # a thread may still be busy with the save of the second before
        while len(await asyncio.to_thread(lambda: list(folder.iterdir()))) > 1:
            await clock.elapse(SECOND_MS)
    assert running.timers.log.first_base > 0
    log.min_offset = 0


async def test_full_store_is_tried_again_after_a_second(
    waiting: RunningTimers, disk: LimitedFiles, clock: ManualClock
) -> None:
    """The job asks for that pause as often as the store takes nothing, and for none while it goes on."""
    clock.advance(2 * HOUR_MS)
    disk.room = 0
    with ThreadPoolExecutor(1) as worker:
        job = TimerJob(waiting.delivery, worker, clock)
        pauses = [await job.run() for _ in range(12)]
    assert pauses[-2:] == [RETRY_MS, RETRY_MS]
    assert set(pauses) == {0, RETRY_MS}
