"""The stages of a producer, consumer, admin or session, and what its jobs and its closing wait for.

    NEW       no use yet; ``starting`` leads on, once
    OPEN      may be used, on the event loop it was opened on
    CLOSED    no use any more; ``close`` undoes what the start did, the last first

Closing waits with an ``InFlightCount`` for what has begun. Jobs sleep in a ``TimerEvent``, which ends their wait early.
"""

import asyncio
import enum
from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

from ...common.clock import Clock
from ...common.errors import ClientStateError


class LifeStage(enum.Enum):
    """The three stages, in order."""

    NEW = "is not started yet: enter it with async with"
    OPEN = "is open"
    CLOSED = "is closed"


_OPEN = LifeStage.OPEN  # to look up a member of an enum takes as long as four calls


class Lifecycle:
    """The stage of one object, what is undone when it closes, and the errors of what comes too early or too late."""

    __slots__ = ("_loop", "_owner", "_stack", "open_on", "stage")

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._loop: AbstractEventLoop | None = None
        self._stack = AsyncExitStack()
        self.stage = LifeStage.NEW
        self.open_on: AbstractEventLoop | None = None
        """The loop on which it may be used now: on it, ``check`` has nothing to refuse."""

    def __repr__(self) -> str:
        return f"<{self._owner} {self.stage.value}>"

    @property
    def is_open(self) -> bool:
        """Whether it may be used now."""
        return self.stage is _OPEN

    @property
    def is_closed(self) -> bool:
        """Whether it was used and is no more."""
        return self.stage is LifeStage.CLOSED

    @asynccontextmanager
    async def starting(self) -> AsyncGenerator[AsyncExitStack]:
        """Enter the second stage; yield where to put what closing undoes, the last first.

        When the start fails, all that was put there is undone at once.

        Raises:
            ClientStateError: it has been entered before, make another object; or what runs is not a loop of asyncio.
        """
        if self.stage is not LifeStage.NEW:
            raise ClientStateError(f"{self._owner} cannot be started again: it {self.stage.value}")
        try:
            self._loop = self.open_on = get_running_loop()
        except RuntimeError:
            raise ClientStateError(
                f"{self._owner} cannot be started here: no event loop of asyncio runs, and trio is not supported"
            ) from None
        self.stage = LifeStage.OPEN
        async with AsyncExitStack() as stack:
            stack.callback(self.end)
            yield stack
            self._stack = stack.pop_all()

    def end(self) -> None:
        """Enter the last stage; what is under way still ends."""
        self.stage = LifeStage.CLOSED
        self.open_on = None

    async def close(self) -> None:
        """Undo what was put there at the start.

        Raises:
            ClientStateError: it began on another loop.
        """
        self._check_loop()
        await self._stack.aclose()

    def check(self) -> None:
        """Refuse a use outside the second stage, or outside its event loop.

        Raises:
            ClientStateError: it is too early, too late, or not on the loop it began on.
        """
        if self.stage is not _OPEN:
            raise ClientStateError(f"{self._owner} {self.stage.value}")
        self._check_loop()

    def _check_loop(self) -> None:
        """Refuse a use outside its event loop.

        Raises:
            ClientStateError: it began on another loop.
        """
        try:
            is_at_home = get_running_loop() is self._loop
        except RuntimeError:
            is_at_home = False
        if not is_at_home:
            raise ClientStateError(f"{self._owner} belongs to another event loop: use it where it was entered")


class TimerEvent:
    """Lets a job sleep until its time or until somebody wakes it, whichever comes first."""

    __slots__ = ("_clock", "_event")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._event = asyncio.Event()

    def __repr__(self) -> str:
        return f"<TimerEvent {'asked for' if self._event.is_set() else 'not asked for'}>"

    def wake(self) -> None:
        """End the wait that is under way, or the next one."""
        self._event.set()

    async def wait(self, at_most_ms: int) -> None:
        """Sleep; a call of ``wake`` since the last wait ends it at once."""
        try:
            async with self._clock.timeout(at_most_ms):
                await self._event.wait()
        except TimeoutError:
            pass
        self._event.clear()


class InFlightCount:
    """Counts what is going on, for those who wait until nothing is; use it with ``with``."""

    def __init__(self) -> None:
        self.count = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def __repr__(self) -> str:
        return f"<InFlightCount {self.count}>"

    def __enter__(self) -> None:
        """Something begins."""
        self.count += 1
        self._idle.clear()

    def __exit__(self, *_: object) -> None:
        """It has ended."""
        self.count -= 1
        if self.count == 0:
            self._idle.set()

    async def wait_idle(self) -> None:
        """Wait until nothing is going on."""
        await self._idle.wait()
