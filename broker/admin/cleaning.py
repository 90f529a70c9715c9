"""When a broker's store is cleaned, and where: on the event loop or in the thread for files (behaviour.md D.1).

Rules (``CleanCommitLogService``; store.md §8)
    1. The first round is a minute after the start, then one every ``cleanResourceInterval``; administrators may ask for
       more (``handlers.py``).
    2. The store plans on the event loop; what waits for the disk runs in the broker's thread for files. One cleaning
       goes on at a time; another waits for its turn.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Executor
from typing import TypeVar

from ...common.clock import Clock
from ...remoting.transport.event_loop import TaskScope, repeat
from ...store.cleaner import Cleaner
from ...store.files.file_sync import SlowStep

FIRST_ROUND_MS = 60_000
T = TypeVar("T")


class CleaningJob:
    """Runs the steps of cleaning where they belong."""

    def __init__(self, cleaner: Cleaner, worker: Executor, tasks: TaskScope, clock: Clock) -> None:
        self.cleaner = cleaner
        self._worker = worker
        self._tasks = tasks
        self._clock = clock
        self._turn = asyncio.Lock()

    @property
    def is_at_work(self) -> bool:
        """Whether a cleaning is under way."""
        return self._turn.locked()

    async def run(self) -> int:
        """Do one round; return the pause."""
        await self.do(self.cleaner.round())
        return self.cleaner.period_ms

    async def do(self, steps: Iterator[SlowStep]) -> None:
        """Go through the steps, after those of a cleaning that is under way (raises ``OSError``)."""
        loop = asyncio.get_running_loop()
        async with self._turn:
            for step in steps:
                await loop.run_in_executor(self._worker, step.run)
                if step.pause_ms:
                    await self._clock.sleep(step.pause_ms)

    async def remove_queues(self, topics: frozenset[str], is_back: Callable[[str], bool]) -> None:
        """Remove the queues of topics that are gone, unless one has come back meanwhile (raises ``OSError``)."""
        await self.do(self.cleaner.unused_topics(lambda topic: topic not in topics or is_back(topic)))

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Return what some work that waits for the disk gives."""
        return await asyncio.get_running_loop().run_in_executor(self._worker, work)

    def start(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        """Begin a piece of work that nobody waits for here."""
        self._tasks.start(repeat(work, self._clock), name)
