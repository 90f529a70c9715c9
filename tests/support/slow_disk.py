"""A disk whose flushes wait until a test lets them go, or fail, and that can be full."""

import errno
import os
import threading
from collections.abc import Sequence

from rocketlet.store.files.files import Files


class SlowDisk(Files):
    """Holds back what is flushed while ``is_stuck``; ``waiting`` is set once somebody waits."""

    def __init__(self) -> None:
        self._moves = threading.Event()
        self._moves.set()
        self.waiting = threading.Event()
        self.fails = False
        self.has_room = True
        self.syncs = 0

    def get_stuck(self) -> None:
        """Hold back every flush from now on."""
        self.waiting.clear()
        self._moves.clear()

    def go_on(self, *, failing: bool = False) -> None:
        """Let the flushes go that wait, and those that come; with ``failing`` the disk fails from now on."""
        self.fails = failing
        self._moves.set()

    def pwritev(self, descriptor: int, buffers: Sequence[bytes | memoryview], position: int) -> int:
        """Write if there is room."""
        if not self.has_room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().pwritev(descriptor, buffers, position)

    def sync(self, descriptor: int) -> None:
        """Wait, then flush or fail."""
        if not self._moves.is_set():
            self.waiting.set()
            self._moves.wait()
        if self.fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.syncs += 1
        super().sync(descriptor)
