"""A disk that can be full, slow or broken, and whose process can be gone: what a store's ``Files`` do then.

    full      nothing can be written or made (ENOSPC); renaming and removing go on
    slow      a flush of log, queues or index takes a time of the broker's clock; writes go to the page cache and are as
              fast as ever, and so are the saves of tables: the broker's loop, and who moves its clock, wait for those
    failing   a flush fails (EIO)
    killed    nothing is changed any more: what a SIGKILL leaves is what the page cache has, none of the tidying up

The disk itself is spared: the store is removed with the test, so a flush that succeeds has nothing to do.

Flushes run on threads of the store, which wait for the loop's clock by an event; a thread never waits on time.
"""

import errno
import os
import threading
from collections.abc import Callable, Sequence
from typing import Final, Literal, Protocol, TypeVar

from ...common.clock import Clock
from ...store.files.files import Files
from .hits import ActiveFault, RunOnLoop

T = TypeVar("T")
Kind = Literal["full", "slow", "failing"]
_SAVES: Final = "rocketlet-files"
"""How threads are called that save tables (``broker/server.py``)."""


class InjectedDiskError(OSError):
    """A disk error that a test has asked for."""


class DiskFault(ActiveFault):
    """What is wrong with a disk, until the block, the test or ``remove`` ends it."""

    def __init__(self, kind: Kind, delay_ms: int, run: RunOnLoop, end: "EndFault", *, optional: bool) -> None:
        super().__init__(run, optional=optional)
        self.kind: Kind = kind
        self.delay_ms = delay_ms
        self._end_in_disk = end

    def __repr__(self) -> str:
        return f"<DiskFault {self}, met {self.hits} times>"

    def __str__(self) -> str:
        """Return the fault in words."""
        if self.kind == "slow":
            return f"flushes take {self.delay_ms} ms"
        return "the disk is full" if self.kind == "full" else "flushes fail"

    @property
    def complaint(self) -> str:
        """What is wrong with it if nothing has met it."""
        return f"nothing has met the fault: {self}"

    def _end(self, *, is_told: bool) -> None:
        self._end_in_disk(self, is_told=is_told)


class EndFault(Protocol):
    """Ends a fault; ``is_told`` says that nobody shall hear of it at the end of the test."""

    def __call__(self, fault: DiskFault, *, is_told: bool) -> object:
        """Do it."""
        ...


class DiskFaults(Files):
    """Files of a disk that fails when told; ``start`` and ``kill`` are the life of the process that uses them.

    What a test gives a broker for a disk of its own is derived from this.
    """

    def __init__(self) -> None:
        self._active: tuple[DiskFault, ...] = ()
        self._unmet: list[DiskFault] = []
        self._is_killed = False
        self._waiting: set[threading.Event] = set()
        self._guard = threading.Lock()
        self._wake_later: Callable[[int, threading.Event], object] = _wake_now
        self._soon: Callable[[Callable[[], object]], object] = _at_once
        self._run: RunOnLoop = _at_once

    def __repr__(self) -> str:
        return f"<DiskFaults {', '.join(map(str, self._active)) or 'none'}{', killed' if self._is_killed else ''}>"

    # on the broker's loop

    def listen(self, run: RunOnLoop) -> None:
        """Take what a test's thread asks for by ``run``, which does it on the loop."""
        self._run = run

    def start(self, clock: Clock, soon: Callable[[Callable[[], object]], object]) -> None:
        """Begin a life; ``soon`` has something done on the loop for any thread."""
        self._is_killed = False
        self._soon = soon

        def wake_later(delay_ms: int, event: threading.Event) -> None:
            soon(lambda: clock.call_at(clock.monotonic_ms() + delay_ms, event.set))

        self._wake_later = wake_later

    def kill(self) -> None:
        """Let nothing be changed any more."""
        self._is_killed = True
        self.stop()

    def stop(self) -> None:
        """Let nothing wait any more: who would move the clock?"""
        self._wake_later = _wake_now
        self.release()

    def release(self) -> None:
        """Let the flushes go on that wait."""
        with self._guard:
            waiting, self._waiting = self._waiting, set()
        for event in waiting:
            event.set()

    def add(self, kind: Kind, delay_ms: int = 0, *, optional: bool = False) -> DiskFault:
        """Let the disk be like that from now on."""
        fault = DiskFault(kind, delay_ms, self._run, self._end_on_loop, optional=optional)
        self._active = (*self._active, fault)
        return fault

    def end(self) -> Sequence[DiskFault]:
        """End all faults, and return those that nothing has met."""
        for fault in self._active:
            self._end(fault, is_told=False)
        unmet, self._unmet = self._unmet, []
        return unmet

    def _end_on_loop(self, fault: DiskFault, *, is_told: bool) -> None:
        self._run(lambda: self._end(fault, is_told=is_told))

    def _end(self, fault: DiskFault, *, is_told: bool) -> None:
        if fault in self._active:
            self._active = tuple(one for one in self._active if one is not fault)
            if fault.is_unmet and not is_told:
                self._unmet.append(fault)
            if fault.kind == "slow":
                self.release()

    # on any thread

    def _find(self, kind: Kind) -> DiskFault | None:
        return next((one for one in self._active if one.kind == kind), None)

    def _meet(self, fault: DiskFault) -> None:
        self._soon(fault.hit)

    def _check_change(self) -> None:
        if self._is_killed:
            raise InjectedDiskError(errno.EIO, "the broker was killed by the test")

    def _check_room(self) -> None:
        self._check_change()
        if (full := self._find("full")) is not None:
            self._meet(full)
            raise InjectedDiskError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _check_flush(self) -> None:
        self._check_change()
        slow = None if threading.current_thread().name.startswith(_SAVES) else self._find("slow")
        if slow is not None:
            self._wait(slow)
            self._check_change()
        if (failing := self._find("failing")) is not None:
            self._meet(failing)
            raise InjectedDiskError(errno.EIO, os.strerror(errno.EIO))

    def _wait(self, fault: DiskFault) -> None:
        event = threading.Event()
        with self._guard:
            if fault not in self._active:
                return
            self._waiting.add(event)
        self._wake_later(fault.delay_ms, event)
        self._meet(fault)  # behind what wakes it: who has waited for this may move the clock
        event.wait()
        with self._guard:
            self._waiting.discard(event)

    # what changes files

    def create(self, path: str, size: int, mode: int = 0o644) -> int:
        """Make a file if there is room."""
        self._check_room()
        return super().create(path, size, mode)

    def pwrite(self, descriptor: int, data: bytes | bytearray | memoryview, position: int) -> int:
        """Write if there is room."""
        self._check_room()
        return super().pwrite(descriptor, data, position)

    def pwritev(self, descriptor: int, buffers: Sequence[bytes | memoryview], position: int) -> int:
        """Write if there is room."""
        self._check_room()
        return super().pwritev(descriptor, buffers, position)

    def truncate(self, descriptor: int, size: int) -> None:
        """Set the length of a file, unless the process is gone."""
        self._check_change()
        super().truncate(descriptor, size)

    def sync(self, descriptor: int) -> None:
        """Wait, then succeed or fail; ``descriptor`` is left to the page cache."""
        self._check_flush()

    def sync_directory(self, path: str) -> None:
        """Succeed, unless the process is gone; ``path`` is left to the page cache."""
        self._check_change()

    def rename(self, source: str, target: str) -> None:
        """Rename, unless the process is gone."""
        self._check_change()
        super().rename(source, target)

    def copy_mode(self, source: str, target: str) -> None:
        """Copy permissions, unless the process is gone."""
        self._check_change()
        super().copy_mode(source, target)

    def unlink(self, path: str) -> None:
        """Remove a file, unless the process is gone."""
        self._check_change()
        super().unlink(path)

    def make_directories(self, path: str) -> None:
        """Make directories, unless the process is gone."""
        self._check_change()
        super().make_directories(path)

    def remove_directory(self, path: str) -> None:
        """Remove a directory, unless the process is gone."""
        self._check_change()
        super().remove_directory(path)


def _wake_now(_delay_ms: int, event: threading.Event) -> None:
    """Let a flush not wait: no broker runs."""
    event.set()


def _at_once(work: Callable[[], T]) -> T:
    return work()
