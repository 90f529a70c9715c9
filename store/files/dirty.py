"""Files that were written and are not flushed yet, each with how much was written to it."""

import sys
from typing import Final

DUE_AT_ONCE: Final = sys.maxsize
"""Counts as more than any bound: the next look at the queues takes the file."""


class DirtyFiles(dict[str, int]):
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
