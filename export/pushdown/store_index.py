"""The index files of a store that is only read: the records of a key, and the ranges of the log that they know.

    index/17 digits     header, slots, entries (``store.indexfile``; store.md §4)

Rules:

- Sure are files of a store that was cleanly closed, and full files that the checkpoint covers. A file knows the log
  from its first record up to its last one, whose keys may go on in the next file if there is one.
- Between two files there may be records that no file knows: those have no keys, or their file was lost. Nobody can
  tell, so they are to be read.
- The sizes of slots and entries are not in the files. They are the ones given, Java's defaults, or follow from a file
  that is full; else the index is not used.
- Entries of other keys with an equal hash are found as well; the reader compares.
"""

import os
import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from ...common.message import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from ...common.properties import KEYS, UNIQ_KEY, index_hash
from ...common.record import Record
from ...store.files.files import OS_FILES, check_map
from ...store.index.index_file import HEADER, INDEX_ENTRY
from ..plan.filesystems import list_names
from ..plan.split import PlannedLog

DEFAULT_SIZES: Final = (5_000_000, 20_000_000)
MOST_FOUND: Final = 100_000
_NAME_DIGITS: Final = 17
_SLOT: Final = struct.Struct(">i")
_MOST_CHECKED: Final = 64


class LogRange(NamedTuple):
    """A part of the log, from one log offset up to another."""

    first: int
    stop: int


class _File(NamedTuple):
    data: memoryview
    slots: int
    used: int
    begin: int
    end: int


class StoreIndex:
    """The sure index files of a store; ``ranges`` are the parts of the log that they know."""

    def __init__(self, home: str, log: PlannedLog, sure_at_ms: int | None, sizes: tuple[int, int] | None) -> None:
        self._log = log
        self._files = _open_files(os.path.join(home, "index"), sure_at_ms, sizes)
        self.ranges = self._join()
        if self.ranges and sure_at_ms is None:
            last = self.ranges[-1]
            self.ranges[-1] = LogRange(last.first, self._record_end(last.stop))
        if not all(map(self._knows, self._checked_records())):
            self.ranges = []

    def find(self, keys: Iterable[str]) -> list[int] | None:
        """Return the log offsets of records with one of these keys ("topic#key"), ``None`` if there are very many."""
        found: set[int] = set()
        for key_hash in {index_hash(key) for key in keys}:
            for file in self._files:
                if not _collect(file, key_hash, found):
                    return None
        return sorted(found)

    def _join(self) -> list[LogRange]:
        ranges: list[LogRange] = []
        for file in self._files:
            last = ranges[-1] if ranges else None
            if last is not None and file.begin <= self._record_end(last.stop):
                ranges[-1] = LogRange(last.first, max(last.stop, file.end))
            elif file.begin < file.end:
                ranges.append(LogRange(file.begin, file.end))
        return ranges

    def _record_end(self, log_offset: int) -> int:
        record = self._log.record_at(log_offset)
        return log_offset + (record.total_size if record is not None else 0)

    def _checked_records(self) -> list[Record]:
        records = [record for _, record in self._log.first_records() if record is not None]
        inside = [each for each in records if any(one.first <= each.log_offset < one.stop for one in self.ranges)]
        return inside[:: max(1, len(inside) // _MOST_CHECKED)]

    def _knows(self, record: Record) -> bool:
        """Tell whether the keys of a record are there, as they are unless no index was built for a while."""
        key = record.properties.get(UNIQ_KEY) or record.properties.get(KEYS, "").partition(" ")[0]
        if not key or record.sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
            return True
        found = self.find([f"{record.topic}#{key}"])
        return found is None or record.log_offset in found


def _open_files(directory: str, sure_at_ms: int | None, sizes: tuple[int, int] | None) -> list[_File]:
    opened: list[tuple[memoryview, tuple[int, ...]]] = []
    for name in list_names(directory):
        if len(name) != _NAME_DIGITS or not name.isdecimal():
            continue
        try:
            path = os.path.join(directory, name)
            size = os.stat(path).st_size
            if size < HEADER.size:
                return []
            data = OS_FILES.map_written(path, size)
        except OSError:
            return []
        opened.append((data, HEADER.unpack_from(data)))
    slots = _find_slots([(len(data), header[-1]) for data, header in opened], sizes)
    if slots is None:
        return []
    return [
        _File(data, slots, header[5], header[2], header[3])
        for data, header in opened
        if header[5] > 1 and (sure_at_ms is None or header[1] <= sure_at_ms)
    ]


def _find_slots(files: list[tuple[int, int]], sizes: tuple[int, int] | None) -> int | None:
    """Return how many slots files of these sizes with so many entries have."""
    lengths = {length for length, _ in files}
    if len(lengths) != 1:
        return None
    room = lengths.pop() - HEADER.size
    for slots, entries in filter(None, (sizes, DEFAULT_SIZES)):
        if _SLOT.size * slots + INDEX_ENTRY.size * entries == room:
            return slots
    full = {(room - INDEX_ENTRY.size * count) / _SLOT.size for _, count in files[:-1]}
    slots = full.pop() if len(full) == 1 else 0
    return int(slots) if slots > 0 and slots == int(slots) else None


def _collect(file: _File, key_hash: int, found: set[int]) -> bool:
    """Add the log offsets of a hash; return whether all were followed."""
    check_map(file.data)
    entries_at = HEADER.size + _SLOT.size * file.slots
    (number,) = _SLOT.unpack_from(file.data, HEADER.size + _SLOT.size * (key_hash % file.slots))
    before = file.used
    steps = 0
    while 0 < number < before:
        check_map(file.data)
        entry_hash, log_offset, _, previous = INDEX_ENTRY.unpack_from(file.data, entries_at + INDEX_ENTRY.size * number)
        if entry_hash == key_hash:
            found.add(log_offset)
        before, number = number, previous
        steps += 1
        if len(found) > MOST_FOUND or steps > 10 * MOST_FOUND:
            return False
    return number == 0
