"""A commit log file on a remote file system, read in windows.

Rule: one window is kept, so that memory is bounded and what is near is not fetched again. A window is as long as
``WINDOW_BYTES`` or as one record needs, whichever is more.
"""

from typing import Final

from ...common.errors import StoreError
from ...store.commitlog.record_blocks import SegmentBytes
from .places import Storage

WINDOW_BYTES: Final = 16 << 20


class RemoteFile:
    """The first ``size`` bytes of a file behind a URL (``logfile.LogFile``)."""

    def __init__(self, path: str, base_offset: int, size: int, storage: Storage) -> None:
        self.path = path
        self.base_offset = base_offset
        self.size = size
        self._window = SegmentBytes(path, base_offset, memoryview(b""))
        system, inner = storage.resolve(path)
        try:
            self._file = system.open_input_file(inner)
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error}") from error

    def __repr__(self) -> str:
        return f"<RemoteFile {self.path} size={self.size}>"

    def window(self, position: int, least: int = 0) -> SegmentBytes:
        """Return bytes from a position on, of the window at hand if that holds what is wanted.

        Raises:
            StoreError: They cannot be read, or the file has become shorter.
        """
        start = self._window.base_offset - self.base_offset
        least = min(max(least, 1), self.size - position)
        if not start <= position <= position + least <= start + self._window.size:
            self._window = self._fetch(position, min(max(least, WINDOW_BYTES), self.size - position))
        return self._window

    def next_data(self, position: int) -> int | None:
        """Return the position: holes are not known."""
        return position

    def _fetch(self, position: int, size: int) -> SegmentBytes:
        try:
            data = self._file.read_at(size, position)
        except OSError as error:
            raise StoreError(f"{self.path} cannot be read at position {position}: {error}") from error
        if len(data) < size:
            raise StoreError(f"{self.path} has become shorter than {self.size} bytes")
        return SegmentBytes(self.path, self.base_offset + position, memoryview(data))
