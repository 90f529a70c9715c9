"""The timed jobs of timer messages: one delivers, one saves and cleans.

Rules

    1. Delivering has one deadline, that of the first slot that holds messages; an arrival wakes it. While there is one,
       the clock is looked at each second: somebody may set it forward, or the machine has slept. A turn of the loop
       does one bounded piece of work; what waits for the disk runs in a thread of its own.
    2. Nothing is opened before the broker is ready, and nothing at all where there was never a timer message.
    3. Saved is what was there before a flush of the log, when something has changed, every ``timerFlushIntervalMs`` at
       most, and at the end. What cannot be saved is found in the log after a crash. After a flush that failed
       nothing is saved until the broker is started again: the kernel may have dropped what it should have written.
    4. At the end, messages that have arrived are put into the wheel: a Java broker that finds one too late does not
       look for its recall.
    5. When the log has lost files, the timer log loses those that lead there.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AsyncExitStack

from ...common.clock import Clock
from ...common.errors import StoreNotWritableError
from ...common.names import TIMER_TOPIC
from ...remoting.transport.event_loop import TaskScope, repeat, wait_until_due
from ...store.files.files import NO_ROOM
from ...store.message_store import MessageStore
from ...store.timer.timers import Timers
from ..outcomes.group_commit import WriteRetry, wait_flushed
from .timer_delivery import TimerDelivery

RETRY_MS = 1_000
_MOST_PIECES = 1_000
_log = logging.getLogger(__name__)


class TimerJob:
    """Waits for messages and deadlines, and does what is to be done."""

    def __init__(
        self, delivery: TimerDelivery, worker: Executor, clock: Clock, on_worked: Callable[[], object] | None = None
    ) -> None:
        self._delivery = delivery
        self._worker = worker
        self._clock = clock
        self._woken = delivery.has_arrivals
        self._on_worked = on_worked
        self._retry = WriteRetry("delivery of timer messages is")
        self._is_stopped = False

    async def run(self) -> int | None:
        """Do a piece of work, or wait for the next; return the pause."""
        return None if self._is_stopped else await self._retry.run(self._advance, RETRY_MS)

    def stop(self) -> None:
        """Deliver nothing more."""
        self._is_stopped = True
        self._woken.set()

    async def put_rest(self) -> None:
        """Put what has arrived into the wheel, so that a Java broker finds it there; not too much of it."""
        for _ in range(_MOST_PIECES):
            if not self._delivery.has_rest:
                return
            try:
                slow = self._delivery.put_rest()
                if slow is not None:
                    await asyncio.get_running_loop().run_in_executor(self._worker, slow)
            except (StoreNotWritableError, OSError) as error:
                text = "filling the timer wheel failed, timer messages stay in topic %s until the next start: %s"
                _log.warning(text, TIMER_TOPIC, error)
                return

    async def _advance(self) -> int:
        self._woken.clear()
        slow = self._delivery.advance()
        if slow is not None:
            await asyncio.get_running_loop().run_in_executor(self._worker, slow)
            return 0
        if self._on_worked is not None and self._delivery.timers.is_open:
            self._on_worked()
        if self._delivery.is_idle:
            await wait_until_due(self._woken, lambda: self._delivery.wait_ms, self._clock)
        else:
            await asyncio.sleep(0)  # others have their turn
        return 0


class TimerSaveJob:
    """Saves how far the timers have come, and removes files of the timer log that nobody needs."""

    def __init__(self, store: MessageStore, timers: Timers, worker: Executor) -> None:
        self._store = store
        self._timers = timers
        self._worker = worker
        self._turn = asyncio.Lock()
        self._changed = asyncio.Event()
        self._cleaned_to = 0
        self._has_failed = False
        self.period_ms = timers.config.flush_interval_ms

    def wake(self) -> None:
        """Hear that something may have changed."""
        self._changed.set()

    async def run(self) -> int:
        """Wait for a change and save it; return the pause (raises ``OSError``, ``StoreNotWritableError``)."""
        await self._changed.wait()
        await self.save()
        return self.period_ms

    async def save(self) -> None:
        """Save what has changed (raises ``OSError``, ``StoreNotWritableError``)."""
        async with self._turn:
            self._changed.clear()
            await self._save()
            log_min_offset = self._store.log_min_offset
            if self._timers.is_open and log_min_offset > self._cleaned_to:
                await asyncio.get_running_loop().run_in_executor(self._worker, self._timers.clean, log_min_offset)
                self._cleaned_to = log_min_offset

    async def save_last(self) -> None:
        """Save at the end; what the disk does not take is logged, and is delivered once more."""
        try:
            await self.save()
        except (OSError, StoreNotWritableError) as error:
            _log.warning(
                "saving the timer files failed, some timer messages are delivered again after the restart: %s", error
            )

    async def _save(self) -> None:
        save = None if self._has_failed else self._timers.take_save()
        if save is None:
            return
        try:
            await wait_flushed(self._store)
            await asyncio.get_running_loop().run_in_executor(self._worker, self._timers.write, save)
        except (OSError, StoreNotWritableError) as error:
            self._timers.put_back(save)
            self._changed.set()
            self._has_failed = not (isinstance(error, OSError) and error.errno in NO_ROOM)
            raise
        self._timers.settle(save)


def start_timers(stack: AsyncExitStack, tasks: TaskScope, clock: Clock, delivery: TimerDelivery) -> None:
    """Deliver and save from now on; leaving the stack stops that, saves for the last time and closes the files."""
    stack.callback(delivery.timers.close)
    reading = stack.enter_context(ThreadPoolExecutor(1, "rocketlet-timers"))
    writing = stack.enter_context(ThreadPoolExecutor(1, "rocketlet-timer-files"))
    saving = TimerSaveJob(delivery.store, delivery.timers, writing)
    job = TimerJob(delivery, reading, clock, saving.wake)
    stack.push_async_callback(saving.save_last)
    stack.push_async_callback(job.put_rest)
    stack.callback(job.stop)
    tasks.start(repeat(job.run, clock), "deliver timer messages")
    tasks.start(repeat(saving.run, clock), "save timer messages")
