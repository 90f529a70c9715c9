"""The event loop of a server or client: which one it is, its clock, and its tasks.

Rules
    1. uvloop where it is installed, asyncio's own loop where there is no wheel of it.
    2. ``TaskScope`` is a TaskGroup that ends by cancelling what still runs, so that leaving it never waits for a job.
    3. A job does one round and returns how long to wait for the next, or None to end.
    4. An error in a round is logged, and the job goes on after a pause that doubles with each failure in a row: the
       fault boundary "per timed job".
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Self, TypeVar

from ...common.clock import Clock
from ...common.errors import RocketletError


def find_loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what ``asyncio.Runner`` shall make its loop with; ``None`` stands for asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


class LoopClock:
    """A ``Clock`` whose timers are those of the running loop."""

    def __repr__(self) -> str:
        return f"<LoopClock at {self.now_ms()}>"

    def now_ms(self) -> int:
        """Return the wall clock time."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Return the time of this process, which never goes back."""
        return time.monotonic_ns() // 1_000_000

    def call_at(self, at_ms: int, callback: Callable[..., object], *args: object) -> asyncio.TimerHandle:
        """Call ``callback(*args)`` on the loop once ``monotonic_ms()`` has reached ``at_ms``."""
        delay_ms = at_ms - self.monotonic_ms() + 1  # loops count whole milliseconds and may be one early
        return asyncio.get_running_loop().call_later(max(0, delay_ms) / 1000, callback, *args)

    async def sleep(self, delay_ms: int) -> None:
        """Wait until ``delay_ms`` have passed."""
        await asyncio.sleep(delay_ms / 1000)

    def timeout(self, delay_ms: int) -> AbstractAsyncContextManager[asyncio.Timeout]:
        """Return a block that raises ``TimeoutError`` once it has run for ``delay_ms``."""
        return asyncio.timeout(delay_ms / 1000)


T = TypeVar("T")
Job = Callable[[], Awaitable[int | None]]

FIRST_PAUSE_MS = 1000
LONGEST_PAUSE_MS = 60_000
LOOK_MS = 1_000
_log = logging.getLogger(__name__)


class TaskScope:
    """Tasks that end with the object that owns them."""

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[Any]] = set()

    def __repr__(self) -> str:
        return f"<TaskScope {len(self._tasks)} tasks>"

    async def __aenter__(self) -> Self:
        """Allow tasks to be started."""
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Cancel the tasks and wait until they have ended."""
        for task in tuple(self._tasks):
            task.cancel()
        await self._group.__aexit__(None, None, None)

    def start(self, work: Coroutine[object, object, T], name: str) -> asyncio.Task[T]:
        """Start a task."""
        task = self._group.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def repeat(job: Job, clock: Clock, *, first_ms: int = 0) -> None:
    """Run a job until it ends or is cancelled, with the pauses that it asks for."""
    delay_ms: int | None = first_ms
    pause_ms = FIRST_PAUSE_MS
    while delay_ms is not None:
        if delay_ms > 0:
            await clock.sleep(delay_ms)
        try:
            delay_ms = await job()
            pause_ms = FIRST_PAUSE_MS
        except Exception as error:  # the fault boundary of timed jobs: one bad round must not end the server
            has_told = isinstance(error, RocketletError | OSError)
            _log.warning(
                "%s failed, retrying in %d ms: %s", _name_of(job), pause_ms, error, exc_info=None if has_told else error
            )
            delay_ms, pause_ms = pause_ms, min(2 * pause_ms, LONGEST_PAUSE_MS)


async def wait_at_most(event: asyncio.Event, limit_ms: int, clock: Clock) -> None:
    """Return when an event has happened, or after a while."""
    with suppress(TimeoutError):
        async with clock.timeout(limit_ms):
            await event.wait()


async def wait_until_due(event: asyncio.Event, left_ms: Callable[[], int | None], clock: Clock) -> None:
    """Return when an event has happened, or ``left_ms`` says that no time is left; None waits for the event alone.

    It is asked each second: somebody may set the clock forward, or the machine has slept.
    """
    while not event.is_set():
        wait_ms = left_ms()
        if wait_ms is None:
            await event.wait()
        elif wait_ms <= 0:
            return
        else:
            await wait_at_most(event, min(wait_ms, LOOK_MS), clock)


def _name_of(job: Job) -> str:
    return getattr(job, "__qualname__", repr(job))
