"""How often a fault was met, and who waits until it was met so often."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, Protocol, TypeVar

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

    def wait(self, count: int, timeout_s: float, what: object) -> None:
        """Wait until there are so many (raises ``TimeoutError`` that says of what)."""
        try:
            self._run(lambda: self._promise(count)).result(timeout_s)
        except TimeoutError:
            raise TimeoutError(f"after {timeout_s:g} s: {what}, {count} were waited for") from None

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
