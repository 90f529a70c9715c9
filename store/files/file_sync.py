"""Bringing files to the disk and off it: which wait for a flush, how many are flushed at once, and on which thread.

``UnsyncedFiles`` were written and are not flushed yet. A ``CoalescingWorker`` is a thread: whatever is asked for while
it is busy is done by its next round together. ``sync_all`` flushes files and directories, ``FileRemoval`` removes
files.

Rules of flushing:

- Directories come after the files: a name on the disk leads to a file of its full size.
- What has been removed meanwhile is passed over.
- Few are flushed one after the other, many by some threads side by side: the file system commits one journal for all
  that wait at the same time.

Rules of removing:

- Files go one at a time, and the name of each is gone for certain before the next is touched: a power loss in between
  leaves files that follow each other, never a gap.
- What fails is kept in ``error`` for the owner's thread to judge; a file that is gone already is no failure.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Final, Generic, NamedTuple, Protocol, Self, TypeVar

from ...common.errors import StoreNotWritableError
from .files import Files

DUE_AT_ONCE: Final = sys.maxsize
"""Counts as more than any bound: the next look at the queues takes the file."""
SIDE_BY_SIDE_FROM: Final = 64
_THREADS: Final = 8
Done = Callable[[StoreNotWritableError | None], None]
"""Told on the flusher's thread that a round is over, and why it failed."""


class UnsyncedFiles(dict[str, int]):
    """Bytes written since the last flush, by path."""

    def add(self, path: str) -> None:
        """Take a file that is flushed with the next, however little was written to it."""
        self[path] = DUE_AT_ONCE

    def discard(self, path: str) -> None:
        """Forget a file, which is gone."""
        self.pop(path, None)

    def take(self, least_bytes: int = 0) -> list[str]:
        """Return the files to which at least so much was written, in that order, and forget them."""
        taken = [path for path, written in self.items() if written >= least_bytes]
        if len(taken) == len(self):
            self.clear()
        else:
            for path in taken:
                del self[path]
        return taken


def sync_all(files: Files, paths: Sequence[str], directories: Sequence[str]) -> None:
    """Return once all of them are on the disk (raises ``OSError``, some may be then)."""
    _for_each(partial(_sync_path, files), paths)
    _for_each(partial(_sync_directory, files), directories)


def _for_each(sync: Callable[[str], None], names: Sequence[str]) -> None:
    if len(names) < SIDE_BY_SIDE_FROM:
        _one_by_one(sync, names)
        return
    try:
        with ThreadPoolExecutor(_THREADS, "rocketlet-sync") as threads:
            parts = [threads.submit(_one_by_one, sync, names[first::_THREADS]) for first in range(_THREADS)]
    except RuntimeError:  # no thread can be started
        _one_by_one(sync, names)
        return
    for part in parts:
        part.result()


def _one_by_one(sync: Callable[[str], None], names: Iterable[str]) -> None:
    for name in names:
        sync(name)


def _sync_path(files: Files, path: str) -> None:
    try:
        descriptor = files.open(path, writable=True)
    except FileNotFoundError:
        return
    try:
        files.sync(descriptor)
    finally:
        files.close(descriptor)


def _sync_directory(files: Files, path: str) -> None:
    with suppress(FileNotFoundError):
        files.sync_directory(path)


class CoalescedWork(Protocol):
    """What one round does."""

    def merge(self, later: Self) -> None:
        """Take over what was asked for later."""
        ...


W = TypeVar("W", bound=CoalescedWork)


class CoalescingWorker(Generic[W]):
    """One thread, started by the first request; ``serve`` runs one round at a time, on whatever thread."""

    def __init__(self, name: str, serve: Callable[[W], StoreNotWritableError | None]) -> None:
        self._name = name
        self._serve = serve
        self._lock = threading.Lock()
        self._wakes: SimpleQueue[None] = SimpleQueue()
        self._serving = threading.Lock()
        self._thread: threading.Thread | None = None
        self._work: W | None = None
        self._waiters: dict[Done, None] = {}
        self._is_closing = False

    def __repr__(self) -> str:
        return f"<CoalescingWorker of {self._name}>"

    def request(self, work: W, done: Done | None = None) -> None:
        """Do the work and all asked for before; ``done`` is called once for a round, however often it was given."""
        with self._lock:
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
        self._wakes.put(None)

    def run_now(self, work: W) -> StoreNotWritableError | None:
        """Do the work, and all asked for before, on the caller's thread; return why it failed."""
        return self._run_round(work)

    def close(self) -> None:
        """Do what was asked for and end the thread."""
        self._is_closing = True
        self._wakes.put(None)
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while True:
            self._wakes.get()
            if self._work is not None:
                self._run_round(None)
            elif self._is_closing:
                return

    def _run_round(self, added: W | None) -> StoreNotWritableError | None:
        with self._serving:
            with self._lock:
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


class SlowStep(NamedTuple):
    """A piece of work for such a thread, and how long to wait after it."""

    run: Callable[[], None]
    pause_ms: int = 0


class FileRemoval:
    """Removes files in order, and at last their directories if that is wanted."""

    def __init__(self, files: Files, paths: Iterable[str], directories: Iterable[str] = ()) -> None:
        self._files = files
        self._paths = tuple(paths)
        self._directories = tuple(directories)
        self.error: OSError | None = None
        self.removed = 0

    def run(self) -> None:
        """Remove; stops at the first file that cannot be removed."""
        try:
            for path in self._paths:
                with suppress(FileNotFoundError):
                    self._files.unlink(path)
                self.removed += 1
                self._files.sync_directory(os.path.dirname(path))
            for directory in self._directories:
                self._remove_directory(directory)
        except OSError as error:
            self.error = error

    def _remove_directory(self, path: str) -> None:
        if not self._files.list(path):
            with suppress(FileNotFoundError):
                self._files.remove_directory(path)
                self._files.sync_directory(os.path.dirname(path))
