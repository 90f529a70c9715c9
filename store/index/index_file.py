"""One index file: where the records of a key lie in the log.

    header   begin time 8 | end time 8 | begin log offset 8 | end log offset 8 | used slots 4 | count 4     = 40 bytes
    slots    maxHashSlotNum x 4: number of the newest entry of the slot, 0 when there is none
    entries  maxIndexNum x 20: key hash 4 | log offset 8 | seconds since begin time 4 | previous entry of the slot 4

Rules (``IndexFile``, ``IndexHeader``; store.md §4):

- Entry 0 is never used and ``count`` begins at 1: it is the number that the next entry gets. A file is full when
  ``count`` reaches maxIndexNum.
- Entries and header are written as they come. The slots of the file that is being filled are kept in memory and go to
  disk when it is full and at a clean stop: they follow from the entries, and recovery makes them anew.
- While the slots are not on disk, the header's end time lies behind the file's begin, if only by a millisecond. After a
  kill Java keeps a file that ends no later than the checkpoint says, which may be the millisecond in which it begins.
- Times are rounded down to seconds.
"""

import errno
import os
import struct
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from ..files.files import Descriptors, Files, make_tree

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

HEADER: Final = struct.Struct(">qqqqii")
INDEX_ENTRY: Final = struct.Struct(">iqii")
_SLOT: Final = struct.Struct(">i")
MAX_SECONDS: Final = 2**31 - 1


class SlotsUnreadableError(OSError):
    """The slots of the file that gets the next entries cannot be read; unlike a failed write it closes no store."""


class IndexFile:
    """Header and layout of one file; ``slots`` is loaded only while the file is written to."""

    def __init__(self, space: "IndexSpace", path: str) -> None:
        self._space = space
        self.path = path
        self.begin_at_ms = self.end_at_ms = 0
        self.begin_log_offset = self.end_log_offset = 0
        self.used_slots = 0
        self.count = 1
        self.slots: NDArray[np.int32] | None = None

    def __repr__(self) -> str:
        return f"<IndexFile {self.path} {self.count} of {self._space.max_entries}>"

    @property
    def is_full(self) -> bool:
        """Whether the next entry needs a new file."""
        return self.count >= self._space.max_entries

    @property
    def room(self) -> int:
        """How many entries still fit."""
        return max(0, self._space.max_entries - self.count)

    def load_header(self) -> None:
        """Read the header."""
        data = self._read(HEADER.size, 0)
        (
            self.begin_at_ms,
            self.end_at_ms,
            self.begin_log_offset,
            self.end_log_offset,
            self.used_slots,
            count,
        ) = HEADER.unpack(data)
        self.count = min(max(1, count), self._space.max_entries)

    def write_header(self, *, has_slots: bool) -> None:
        """Write the header, once its slots are on disk or while they are not (raises ``OSError``)."""
        self.write(
            HEADER.pack(
                self.begin_at_ms,
                self.end_at_ms if has_slots else max(self.end_at_ms, self.begin_at_ms + 1),
                self.begin_log_offset,
                self.end_log_offset,
                self.used_slots,
                self.count,
            ),
            0,
        )

    def entry_position(self, number: int) -> int:
        """Return the place of an entry in the file."""
        return HEADER.size + _SLOT.size * self._space.max_slots + INDEX_ENTRY.size * number

    def read_entries(self, first: int, count: int) -> bytes:
        """Read entries by their numbers."""
        return self._read(count * INDEX_ENTRY.size, self.entry_position(first))

    def read_slots(self) -> bytes:
        """Read the table of slots."""
        return self._read(_SLOT.size * self._space.max_slots, HEADER.size)

    def write(self, data: bytes | memoryview, position: int) -> None:
        """Write all of the data or raise ``OSError``."""
        self._space.write(self.path, data, position)

    def select(self, key_hash: int, begin_ms: int, end_ms: int, limit: int) -> list[int]:
        """Return log offsets of a key's records, newest first (``IndexFile.selectPhyOffset``)."""
        found: list[int] = []
        number = self._slot_value(key_hash % self._space.max_slots)
        while 0 < number < self.count and len(found) < limit:
            entry_hash, log_offset, seconds, previous = INDEX_ENTRY.unpack(self.read_entries(number, 1))
            at_ms = self.begin_at_ms + seconds * 1000
            if seconds < 0:
                break
            if entry_hash == key_hash and begin_ms <= at_ms <= end_ms:
                found.append(log_offset)
            if previous >= number or at_ms < begin_ms:
                break
            number = previous
        return found

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        """Tell whether the file may hold records of the time range (``isTimeMatched``)."""
        return begin_ms <= self.end_at_ms and end_ms >= self.begin_at_ms

    def _slot_value(self, slot: int) -> int:
        if self.slots is not None:
            return int(self.slots[slot])
        return _SLOT.unpack(self._read(_SLOT.size, HEADER.size + _SLOT.size * slot))[0]

    def _read(self, size: int, position: int) -> bytes:
        return self._space.read(self.path, size, position)


class IndexSpace:
    """What all index files of a store share; ``dirty_paths`` and ``new_directories`` are what the next flush takes."""

    def __init__(self, files: Files, directory: str, sizes: tuple[int, int], descriptors: Descriptors) -> None:
        self.files = files
        self.directory = directory
        self.max_slots, self.max_entries = sizes
        self.file_bytes = HEADER.size + _SLOT.size * self.max_slots + INDEX_ENTRY.size * self.max_entries
        self.descriptors = descriptors
        self.dirty_paths: set[str] = set()
        self.new_directories: set[str] = set()

    def read(self, path: str, size: int, position: int) -> bytes:
        """Read from a file; it was made at its full size (raises ``OSError`` where it ends early)."""
        return self.files.read_whole(self.descriptors.get(path), size, position, path)

    def write(self, path: str, data: bytes | memoryview, position: int) -> None:
        """Write all of the data or raise ``OSError``; what a failed call left is overwritten by the next."""
        if self.files.pwrite(self.descriptors.get(path), data, position) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        self.dirty_paths.add(path)

    def create(self, at_ms: int, after: IndexFile | None) -> IndexFile:
        """Make the file that follows ``after``, named by the local time (raises ``OSError``).

        Its header begins with the end of the file before it, as ``IndexService.getAndCreateLastIndexFile`` has it.
        """
        self.new_directories.update(make_tree(self.files, self.directory), (self.directory,))
        file = IndexFile(self, f"{self.directory}/{_file_name(at_ms, after)}")
        self.descriptors.create(file.path, self.file_bytes)
        if after is not None:
            file.begin_at_ms = file.end_at_ms = after.end_at_ms
            file.begin_log_offset = file.end_log_offset = after.end_log_offset
        try:
            file.write_header(has_slots=True)  # which are all zero
        except OSError:
            self.remove(file)  # the next try takes another name
            raise
        return file

    def forget(self, file: IndexFile) -> None:
        """Close a file that is about to be removed."""
        self.descriptors.drop(file.path)
        self.dirty_paths.discard(file.path)

    def remove(self, file: IndexFile) -> None:
        """Remove a file."""
        self.forget(file)
        self.files.unlink(file.path)
        self.new_directories.add(self.directory)


def _file_name(at_ms: int, after: IndexFile | None) -> str:
    name = _format_time(datetime.fromtimestamp(at_ms / 1000).astimezone())
    last = os.path.basename(after.path) if after is not None else ""
    if name > last:
        return name
    moment = datetime.strptime(last, "%Y%m%d%H%M%S%f").astimezone()
    return _format_time(moment + timedelta(milliseconds=1))


def _format_time(moment: datetime) -> str:
    return f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03d}"
