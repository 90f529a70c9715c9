"""A commit log file that is read through windows: a map of the whole of it, or parts that are fetched one by one.

Rules:

- ``window(position, least)`` returns a stretch that begins at or before ``position`` and holds ``least`` bytes from
  there on, or all that the file has. Its ``base_offset`` tells where in the log it begins.
- A file does not look at what its bytes mean, but for ``check_at``, which asks ``common.walk`` about one place.
"""

import struct
from typing import Final, Protocol

from ...common.walk import Verdict, check_record
from ...store.commitlog.record_blocks import SegmentBytes

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


def _check(file: LogFile, window: SegmentBytes, position: int, limit: int, *, checks_crc: bool) -> int:
    shift = window.base_offset - file.base_offset
    view = window.view if limit >= shift + window.size else window.view[: limit - shift]
    return check_record(view, position - shift, file.base_offset + position, checks_crc=checks_crc, reserved_bytes=0)
