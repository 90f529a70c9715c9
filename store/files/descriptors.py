"""A bounded set of open files.

The least recently used descriptor is closed when the bound is reached, so 50,000 queues live with a few hundred
descriptors. Only the thread that owns the store uses it; the flusher opens files of its own.
"""

from collections import OrderedDict

from .files import Files


class Descriptors:
    """Open files by path, at most ``limit`` of them."""

    def __init__(self, files: Files, limit: int) -> None:
        self._files = files
        self._limit = max(4, limit)
        self._open: OrderedDict[str, int] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Descriptors {len(self._open)} of {self._limit}>"

    def get(self, path: str) -> int:
        """Return a descriptor for reading and writing an existing file, valid until the next call."""
        descriptor = self._open.get(path)
        if descriptor is None:
            return self._keep(path, self._files.open(path, writable=True))
        self._open.move_to_end(path)
        return descriptor

    def create(self, path: str, size: int) -> int:
        """Return a descriptor for a file that is made at its full size where missing."""
        return self._keep(path, self._files.create(path, size))

    def drop(self, path: str) -> None:
        """Close the file if it is open."""
        descriptor = self._open.pop(path, None)
        if descriptor is not None:
            self._files.close(descriptor)

    def close(self) -> None:
        """Close all files."""
        while self._open:
            self._files.close(self._open.popitem()[1])

    def _keep(self, path: str, descriptor: int) -> int:
        self.drop(path)
        if len(self._open) >= self._limit:
            self._files.close(self._open.popitem(last=False)[1])
        self._open[path] = descriptor
        return descriptor
