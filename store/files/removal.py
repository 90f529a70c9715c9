"""Slow work of cleaning, for a thread that may wait for the disk.

Rules:

- Files go one at a time, and the name of each is gone for certain before the next is touched: a power loss in between
  leaves files that follow each other, never a gap.
- What fails is kept in ``error`` for the owner's thread to judge; a file that is gone already is no failure.
"""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

from .files import Files


class Step(NamedTuple):
    """A piece of work for such a thread, and how long to wait after it."""

    run: Callable[[], None]
    pause_ms: int = 0


class Removal:
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
