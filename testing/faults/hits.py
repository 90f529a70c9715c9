"""Faults at work: how often one was met, who waits until it was met so often, and how it ends."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, Protocol, Self, TypeVar

T = TypeVar("T")
WAIT_S: Final = 60.0


class RunOnLoop(Protocol):
    """Does something on the broker's loop for another thread, and returns what it returns."""

    def __call__(self, work: Callable[[], T], /) -> T:
        """Do it; nothing else happens there meanwhile."""
        ...


class Hits:
    """Counts on any thread; ``tell``, on the broker's loop, lets those go on who have waited for as many."""

    def __init__(self, run: RunOnLoop) -> None:
        self.count = 0
        self._run = run
        self._waiting: list[tuple[int, Future[None]]] = []

    def __repr__(self) -> str:
        return f"<Hits {self.count}, {len(self._waiting)} waiting>"

    def wait(self, count: int, timeout: float, what: object) -> None:
        """Wait until there are so many (raises ``TimeoutError`` that says of what)."""
        try:
            self._run(lambda: self._promise(count)).result(timeout)
        except TimeoutError:
            raise TimeoutError(f"after {timeout:g} s: {what}, {count} were waited for") from None

    async def reached(self, count: int) -> None:
        """Wait until there are so many."""
        await asyncio.wrap_future(self._run(lambda: self._promise(count)))

    def tell(self) -> None:
        """Let those go on who have waited for what has happened by now."""
        met = [promise for count, promise in self._waiting if count <= self.count]
        self._waiting = [each for each in self._waiting if each[0] > self.count]
        for promise in met:
            if promise.set_running_or_notify_cancel():
                promise.set_result(None)

    def _promise(self, count: int) -> Future[None]:
        promise: Future[None] = Future()
        self._waiting.append((count, promise))
        self.tell()
        return promise


class ActiveFault(ABC):
    """A fault that is at work until the block, the test or ``remove`` ends it; its text says what it is."""

    def __init__(self, run: RunOnLoop, *, optional: bool) -> None:
        self.optional = optional
        self._hits = Hits(run)

    def __enter__(self) -> Self:
        """Return the fault, which is at work already."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End it (raises ``AssertionError`` if nothing has met it)."""
        self._end(is_told=True)
        if kind is None and self.is_unmet:
            raise AssertionError(self.complaint)

    @property
    def hits(self) -> int:
        """How often it was met: by how many requests, or writes and flushes."""
        return self._hits.count

    @property
    def is_unmet(self) -> bool:
        """Whether it was of no use, and should have been."""
        return not (self.hits or self.optional)

    @property
    @abstractmethod
    def complaint(self) -> str:
        """What is wrong with it if nothing has met it."""

    def wait(self, hits: int = 1, timeout: float = WAIT_S) -> None:
        """Wait until it was met so often (raises ``TimeoutError``); in an asynchronous test ``met`` waits."""
        self._hits.wait(hits, timeout, self)

    async def met(self, hits: int = 1) -> None:
        """Wait until it was met so often."""
        await self._hits.reached(hits)

    def remove(self) -> None:
        """End it; what it keeps waiting goes on, but requests that are late already stay so."""
        self._end(is_told=False)

    def hit(self) -> None:
        """Count one, on the broker's loop."""
        self._hits.count += 1
        self._hits.tell()

    @abstractmethod
    def _end(self, *, is_told: bool) -> None:
        """End it; ``is_told`` says that nobody shall hear of it at the end of the test."""
