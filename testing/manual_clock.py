"""A clock that moves only when a test says so.

    call                   moves time   runs what is due           lets woken tasks run
    advance(ms)            both clocks  in order, before it returns  on the loop's next turns
    advance_to(at_ms)      both clocks  the same                     the same
    await elapse(ms)       both clocks  in order                     after every instant, so that they can plan again
    set_wall_clock(by_ms)  the wall's   nothing                      no
    await settle()         no           nothing                      until each task waits for something else

While a call runs, the clocks show the instant it was planned for. What is due at the same instant runs in the order
in which it was planned. A call planned for a past instant runs on the loop's next turn (without a running loop, at
the next ``advance``). An error of a call is raised by the ``advance`` that ran it.

A socket answers when the kernel likes: ``settle`` does not wait for it. Await the fact itself there.
"""

import asyncio
import heapq
import itertools
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

_MOST_TURNS = 100_000
_QUIET_TURNS = 4  # a woken callback may wake a task that wakes another callback: none of them is a task of its own


class PlannedCall:
    """A call of a ``ManualClock`` that has not run yet."""

    __slots__ = ("at_ms", "call", "is_cancelled")

    def __init__(self, at_ms: int, call: Callable[[], object]) -> None:
        self.at_ms = at_ms
        self.call = call
        self.is_cancelled = False

    def cancel(self) -> None:
        """Drop the call; harmless when it has run."""
        self.is_cancelled = True
        self.call = _do_nothing  # as a loop's timer, it lets go of what it would have called


def _do_nothing() -> None:
    """Do nothing."""


class ManualClock:
    """A ``Clock`` under the test's control; use it on one event loop only."""

    def __init__(self, now_ms: int = 1_700_000_000_000, *, monotonic_ms: int = 5_000_000) -> None:
        self._monotonic_ms = monotonic_ms
        self._ahead_ms = now_ms - monotonic_ms  # the wall clock
        self._calls: list[tuple[int, int, PlannedCall]] = []
        self._order = itertools.count()

    def __repr__(self) -> str:
        return f"<ManualClock at {self.now_ms()}, next call at {self.next_at_ms}>"

    @property
    def next_at_ms(self) -> int | None:
        """What the wall clock will show at the earliest instant that something is planned for, if nobody sets it."""
        next_at_ms = self._next_at()
        return None if next_at_ms is None else next_at_ms + self._ahead_ms

    def now_ms(self) -> int:
        """Return what the wall clock shows."""
        return self.monotonic_ms() + self._ahead_ms

    def monotonic_ms(self) -> int:
        """Return the instant that the test has moved to."""
        return self._monotonic_ms

    def set_wall_clock(self, by_ms: int) -> None:
        """Set the wall clock forward, or back; no time passes."""
        self._ahead_ms += by_ms

    def call_at(self, at_ms: int, callback: Callable[..., object], *args: object) -> PlannedCall:
        """Run ``callback(*args)`` when the test moves to ``at_ms`` of the monotonic clock, or beyond."""
        planned = PlannedCall(at_ms, lambda: callback(*args))
        heapq.heappush(self._calls, (at_ms, next(self._order), planned))
        if at_ms <= self.monotonic_ms():
            self._run_due_soon()
        return planned

    async def sleep(self, delay_ms: int) -> None:
        """Wait until the test has moved on by ``delay_ms``."""
        woken = asyncio.get_running_loop().create_future()
        planned = self.call_at(self.monotonic_ms() + delay_ms, _wake, woken)
        try:
            await woken
        finally:
            planned.cancel()

    def timeout(self, delay_ms: int) -> AbstractAsyncContextManager[asyncio.Timeout]:
        """Return a block that raises ``TimeoutError`` once the test has moved on by ``delay_ms``."""
        return self._limit(self.monotonic_ms() + delay_ms)

    def advance(self, delay_ms: int) -> None:
        """Move on by ``delay_ms`` and run what becomes due."""
        self._move_to(self.monotonic_ms() + delay_ms)

    def advance_to(self, at_ms: int) -> None:
        """Move on until the wall clock shows ``at_ms`` and run what becomes due.

        Raises:
            ValueError: the instant lies in the past.
        """
        if at_ms < self.now_ms():
            raise ValueError(f"time only moves on: asked for {at_ms}, it is {self.now_ms()}")
        self.advance(at_ms - self.now_ms())

    async def elapse(self, delay_ms: int) -> None:
        """Move on by ``delay_ms``, and let woken tasks run at each instant on the way."""
        until_ms = self.monotonic_ms() + delay_ms
        await self.settle()
        while (next_at_ms := self._next_at()) is not None and next_at_ms <= until_ms:
            self._move_to(max(next_at_ms, self.monotonic_ms()))
            await self.settle()
        self._move_to(until_ms)

    async def settle(self) -> None:
        """Let the loop run until each other task waits for something that has not happened.

        Raises:
            RuntimeError: some task never comes to rest.
        """
        quiet_turns = 0
        for _ in range(_MOST_TURNS):
            await asyncio.sleep(0)
            quiet_turns = 0 if _has_running_task() else quiet_turns + 1
            if quiet_turns == _QUIET_TURNS:
                return
        raise RuntimeError(f"a task still runs after {_MOST_TURNS} turns of the loop")

    def _move_to(self, at_ms: int) -> None:
        while (due := self._pop_due(at_ms)) is not None:
            self._monotonic_ms = max(self._monotonic_ms, due.at_ms)
            due.call()
        self._monotonic_ms = max(self._monotonic_ms, at_ms)

    def _next_at(self) -> int | None:
        while self._calls and self._calls[0][2].is_cancelled:
            heapq.heappop(self._calls)
        return self._calls[0][0] if self._calls else None

    def _pop_due(self, at_ms: int) -> PlannedCall | None:
        next_at_ms = self._next_at()
        return heapq.heappop(self._calls)[2] if next_at_ms is not None and next_at_ms <= at_ms else None

    def _run_due_soon(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # a synchronous test: the next advance runs it
        loop.call_soon(self.advance, 0)

    @asynccontextmanager
    async def _limit(self, at_ms: int) -> AsyncGenerator[asyncio.Timeout]:
        async with asyncio.timeout(None) as limit:
            planned = self.call_at(at_ms, _expire, limit)
            try:
                yield limit
            finally:
                planned.cancel()


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)


def _expire(limit: asyncio.Timeout) -> None:
    limit.reschedule(asyncio.get_running_loop().time())  # now: cancels the block as asyncio's own timer would


def _has_running_task() -> bool:
    current = asyncio.current_task()
    return any(_is_running(task) for task in asyncio.all_tasks() if task is not current)


def _is_running(task: asyncio.Task[object]) -> bool:
    awaited: asyncio.Future[object] | None = getattr(task, "_fut_waiter", None)  # what anyio's test helper reads too
    return awaited is None or awaited.done()
