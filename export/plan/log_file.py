"""A commit log file that is read through windows: a map of the whole of it, or parts that are fetched from a URL.

Rules:

- ``window(position, least)`` returns a stretch that begins at or before ``position`` and holds ``least`` bytes from
  there on, or all that the file has. Its ``base_offset`` tells where in the log it begins.
- A map lives as long as something refers to it; nothing is closed by hand, since slices may be in use anywhere. It
  shows the file as it is when it is mapped (``store.maps``): reading it takes no room of a tmpfs.
- Of a remote file one window is kept, so that memory is bounded and what is near is not fetched again. It is as long as
  ``WINDOW_BYTES`` or as one record needs, whichever is more.
- A file does not look at what its bytes mean, but for ``check_at`` and ``record_at``, which look at one place.
"""

import mmap
import os
import struct
from typing import Final, Protocol, cast

from ...common.errors import StoreError
from ...common.record import Record, Verdict, check_record, decode_record
from ...store.commitlog.record_blocks import SegmentBytes
from ...store.files.files import OS_FILES, check_map, damaged_by_cut
from .filesystems import Storage

_SIZE: Final = struct.Struct(">i")
_HEAD_BYTES: Final = 4_096


class LogFile(Protocol):
    """The first ``size`` bytes of a commit log file, whose first byte stands at ``base_offset`` in the log."""

    @property
    def path(self) -> str:
        """The path or URL that errors name."""
        ...

    @property
    def base_offset(self) -> int:
        """Where the file begins in the log."""
        ...

    @property
    def size(self) -> int:
        """How many bytes are read at most."""
        ...

    def window(self, position: int, least: int = 0) -> SegmentBytes:
        """Return bytes around a position of the file (raises ``StoreError``)."""
        ...

    def next_data(self, position: int) -> int | None:
        """Return the first position at or behind this one that may hold anything but zeros, ``None`` without one."""
        ...


def check_at(file: LogFile, position: int, *, checks_crc: bool = True, limit: int | None = None) -> int:
    """Return what ``common.walk.check_record`` says of a position, in a file that ends at ``limit``."""
    limit = file.size if limit is None else limit
    window = file.window(position, min(_HEAD_BYTES, limit - position))
    found = _check(file, window, position, limit, checks_crc=checks_crc)
    if found == Verdict.TORN and (size := size_at(window, file, position)) > 0 and position + size <= limit:
        window = file.window(position, size)
        found = _check(file, window, position, limit, checks_crc=checks_crc)
    return found


def size_at(window: SegmentBytes, file: LogFile, position: int) -> int:
    """Return the number that stands where a record names its size, 0 where the window ends before it does."""
    at = position - (window.base_offset - file.base_offset)
    return _SIZE.unpack_from(window.view, at)[0] if at + _SIZE.size <= window.size else 0


def record_at(file: LogFile, position: int) -> Record:
    """Return the record at a position, which must be sound but for its body (``check_at``)."""
    window = file.window(position, size_at(file.window(position, _SIZE.size), file, position))
    return decode_record(window.view, position - (window.base_offset - file.base_offset))


def _check(file: LogFile, window: SegmentBytes, position: int, limit: int, *, checks_crc: bool) -> int:
    shift = window.base_offset - file.base_offset
    view = window.view if limit >= shift + window.size else window.view[: limit - shift]
    return check_record(view, position - shift, file.base_offset + position, checks_crc=checks_crc, reserved_bytes=0)


class MappedLogFile(SegmentBytes):
    """The first ``size`` bytes of a commit log file, read by somebody who does not own the store."""

    def __init__(self, path: str, base_offset: int, size: int) -> None:
        view = OS_FILES.map_written(path, size)
        cast("mmap.mmap", view.obj).madvise(mmap.MADV_SEQUENTIAL)
        super().__init__(path, base_offset, view)

    def window(self, position: int, least: int = 0) -> SegmentBytes:
        """Return all bytes, for a map is not fetched in parts (``logfile.LogFile``)."""
        check_map(self.view)
        return self

    def next_data(self, position: int) -> int | None:
        """Return where data follow a hole of the file, or the position (``logfile.LogFile``)."""
        try:
            descriptor = OS_FILES.open(self.path)
        except OSError:
            return position
        try:
            return OS_FILES.next_data(descriptor, position)
        finally:
            os.close(descriptor)


def map_log_file(path: str, base_offset: int, size: int) -> MappedLogFile:
    """Map the first bytes of a file.

    Raises:
        StoreDamagedError: It has become shorter.
        StoreError: It is gone, or cannot be read.
    """
    try:
        if (found := OS_FILES.size(path)) < size:
            raise damaged_by_cut(path, found, size)
        return MappedLogFile(path, base_offset, size)
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error


WINDOW_BYTES: Final = 16 << 20


class RemoteLogFile:
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
        return f"<RemoteLogFile {self.path} size={self.size}>"

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
