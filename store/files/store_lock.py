"""The file ``lock``: one broker per directory.

Rules (store.md §6.4):

- A POSIX write lock on byte 0, as the Java broker takes it, but before anything else is touched.
- POSIX locks do not see their own process and vanish when any descriptor of the file is closed. So a registry of the
  directories that this process has open is asked first, and nobody else ever opens the file.
"""

import fcntl
import os
import threading

from ...common.errors import StoreInUseError
from .files import Files, write_label

_TEXT = b"lock"
_held: set[str] = set()
_held_guard = threading.Lock()


class StoreLock:
    """The right to write to one store directory, held until ``release``."""

    def __init__(self, files: Files, root: str) -> None:
        self._files = files
        self._root = os.path.realpath(root)
        self._descriptor = -1

    def __repr__(self) -> str:
        return f"<StoreLock {self._root}{' held' if self._descriptor >= 0 else ''}>"

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            StoreInUseError: Another process, or another store object here, holds it.
        """
        with _held_guard:
            if self._root in _held:
                raise StoreInUseError(f"store {self._root} is already open in this process")
            descriptor = self._files.create(os.path.join(self._root, "lock"), 0)
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            except OSError as error:
                self._files.close(descriptor)
                raise StoreInUseError(f"store {self._root} is in use by another process") from error
            self._descriptor = descriptor
            _held.add(self._root)
        write_label(self._files, descriptor, _TEXT)

    def release(self) -> None:
        """Give the lock back; the file stays."""
        with _held_guard:
            if self._descriptor >= 0:
                self._files.close(self._descriptor)
                self._descriptor = -1
                _held.discard(self._root)
