"""A thread that works in rounds: whatever is asked for while it is busy is done by the next round together."""

import threading
from collections.abc import Callable
from typing import Generic, Protocol, Self, TypeVar

from ...common.errors import StoreNotWritableError

Done = Callable[[StoreNotWritableError | None], None]
"""Told on the flusher's thread that a round is over, and why it failed."""


class Work(Protocol):
    """What one round does."""

    def merge(self, later: Self) -> None:
        """Take over what was asked for later."""
        ...


W = TypeVar("W", bound=Work)


class Rounds(Generic[W]):
    """One thread, started by the first request; ``serve`` runs one round at a time, on whatever thread."""

    def __init__(self, name: str, serve: Callable[[W], StoreNotWritableError | None]) -> None:
        self._name = name
        self._serve = serve
        self._condition = threading.Condition()
        self._serving = threading.Lock()
        self._thread: threading.Thread | None = None
        self._work: W | None = None
        self._waiters: dict[Done, None] = {}
        self._is_closing = False

    def __repr__(self) -> str:
        return f"<Rounds of {self._name}>"

    def request(self, work: W, done: Done | None = None) -> None:
        """Do the work and all asked for before; ``done`` is called once for a round, however often it was given."""
        with self._condition:
            if self._work is None:
                self._work = work
            else:
                self._work.merge(work)
            if done is not None:
                self._waiters[done] = None
            if self._thread is None:
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                thread.start()  # when the system has no thread left, the next request tries again
                self._thread = thread
            self._condition.notify()

    def run_now(self, work: W) -> StoreNotWritableError | None:
        """Do the work, and all asked for before, on the caller's thread; return why it failed."""
        return self._run_round(work)

    def close(self) -> None:
        """Do what was asked for and end the thread."""
        with self._condition:
            self._is_closing = True
            self._condition.notify()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while True:
            with self._condition:
                while self._work is None and not self._is_closing:
                    self._condition.wait()
                if self._work is None:
                    return
            self._run_round(None)

    def _run_round(self, added: W | None) -> StoreNotWritableError | None:
        with self._serving:
            with self._condition:
                work, self._work = self._work, None
                waiters, self._waiters = self._waiters, {}
            if work is None:
                work = added
            elif added is not None:
                work.merge(added)
            failure = self._serve(work) if work is not None else None
            for done in waiters:
                done(failure)
            return failure
