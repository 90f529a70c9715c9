"""The queues of a store that is only read: where the entries of a queue stand, and which of them are believed.

    consumequeue/TOPIC/QUEUE ID/20 digits         entries of 20 bytes
    batchconsumequeue/TOPIC/QUEUE ID/20 digits    units of 46 bytes, which begin alike

Rules (store.md §3.1, §3.8, §3.9):

- A directory is understood when its files follow each other and are of one size; the last may be short. Else, and
  without a file, nothing is known of the queue.
- Entries end at the first that is none, or that lies before its predecessor or behind the end of the log: the Java
  broker leaves what it cut off where it is. Entries behind zeros are damage, and nothing is known.
- A queue that begins at offset 0 knows all of its records; another one only those from its first entry on.
"""

import os
import struct
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from ...store.commitlog.record_blocks import Longs, Structs
from ...store.consumequeue.consume_queue import PRE_BLANK_SIZE
from ...store.files.files import OS_FILES, check_map, written_end
from ...store.files.segments import segment_path
from ...store.files.store_config import BATCH_UNIT_BYTES, ENTRY_BYTES

_NAME_DIGITS: Final = 20
_ENTRY: Final = struct.Struct(">qi")
_FIELDS: Final = [("log_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")]
ENTRY_TYPES: Final = {
    ENTRY_BYTES: np.dtype(_FIELDS),
    BATCH_UNIT_BYTES: np.dtype(
        [*_FIELDS, ("stored_at_ms", ">i8"), ("first_offset", ">i8"), ("messages", ">i2"), ("rest", "V8")]
    ),
}
QUEUES: Final = "consumequeue"
BATCH_QUEUES: Final = "batchconsumequeue"
UNIT_BYTES: Final = {QUEUES: ENTRY_BYTES, BATCH_QUEUES: BATCH_UNIT_BYTES}


@dataclass(frozen=True)
class QueueFiles:
    """The files of a queue; slots count its entries, ``first <= slot < stop`` are believed. Travels to tasks."""

    topic: str
    queue_id: int
    directory: str
    first_base: int
    file_bytes: int
    unit_bytes: int
    first: int
    stop: int

    @property
    def is_batch(self) -> bool:
        """Whether the units are those of a batch queue."""
        return self.unit_bytes == BATCH_UNIT_BYTES

    def read(self, first: int, stop: int) -> Structs | None:
        """Return the entries of some slots, ``None`` when the files are not as they were."""
        parts: list[Structs] = []
        while first < stop:
            position = first * self.unit_bytes
            base = position - position % self.file_bytes
            count = min(stop - first, (base + self.file_bytes - position) // self.unit_bytes)
            part = _read(segment_path(self.directory, base), self.unit_bytes, position - base, count)
            if part is None or len(part) != count:
                return None
            parts.append(part)
            first += count
        return np.concatenate(parts) if parts else np.empty(0, ENTRY_TYPES[self.unit_bytes])


class QueueView:
    """A queue whose files are mapped while it is searched."""

    def __init__(self, files: QueueFiles) -> None:
        self.files = files
        self._maps: dict[int, memoryview] = {}

    @cached_property
    def sure_from(self) -> int | None:
        """The log offset from which on the queue knows all of its records; ``None`` if it does not say."""
        if self.files.first == 0:
            return 0
        return self.log_offset(self.files.first) if self.files.first < self.files.stop else None

    @cached_property
    def end_offset(self) -> int:
        """The queue offset behind the last message."""
        if not self.files.is_batch or not self.files.stop:
            return self.files.stop
        last = self.files.read(self.files.stop - 1, self.files.stop)
        return 0 if last is None else int(last["first_offset"][0]) + int(last["messages"][0])

    def log_offset(self, slot: int) -> int:
        """Return where the record of a slot begins."""
        return self._entry(slot)[0]

    def record_end(self, slot: int) -> int:
        """Return where the record of a slot ends."""
        at, size = self._entry(slot)
        return at + size

    def first_at(self, log_offset: int, low: int | None = None) -> int:
        """Return the first slot whose record begins at or behind a place of the log."""
        low, high = self.files.first if low is None else low, self.files.stop
        while low < high:
            middle = (low + high) // 2
            if self.log_offset(middle) >= log_offset:
                high = middle
            else:
                low = middle + 1
        return low

    def _entry(self, slot: int) -> tuple[int, int]:
        position = slot * self.files.unit_bytes
        base = position - position % self.files.file_bytes
        if base not in self._maps:
            path = segment_path(self.files.directory, base)
            self._maps[base] = OS_FILES.map_written(path, os.stat(path).st_size)
        check_map(self._maps[base])
        at, size = _ENTRY.unpack_from(self._maps[base], position - base)
        return at, size


def open_queue(home: str, topic: str, queue_id: int, log_end: int) -> QueueFiles | None:
    """Return a queue of a store, ``None`` when it is missing or not understood."""
    for kind, unit_bytes in UNIT_BYTES.items():
        directory = os.path.join(home, kind, topic, str(queue_id))
        try:
            with os.scandir(directory) as entries:
                found = sorted((int(one.name), one.stat().st_size) for one in entries if _is_name(one.name))
        except FileNotFoundError:
            continue
        except OSError:
            return None
        place = QueueFiles(topic, queue_id, directory, 0, 0, unit_bytes, 0, 0)
        return _understand(place, found, log_end)
    return None


def _is_name(name: str) -> bool:
    return len(name) == _NAME_DIGITS and name.isascii() and name.isdigit()


def _understand(place: QueueFiles, found: list[tuple[int, int]], log_end: int) -> QueueFiles | None:
    if not found:
        return None
    first_base, file_bytes = found[0]
    unit_bytes = place.unit_bytes
    bases = [first_base + number * file_bytes for number in range(len(found))]
    is_even = all(size == file_bytes for _, size in found[:-1]) and found[-1][1] <= file_bytes
    if not is_even or not file_bytes or file_bytes % unit_bytes or [base for base, _ in found] != bases:
        return None
    first = stop = first_base // unit_bytes
    for base, size in reversed(found):
        entries = _read_written(segment_path(place.directory, base), unit_bytes, size)
        count = None if entries is None else _believed(entries, log_end)
        if count is None:
            return None
        if count:
            stop = base // unit_bytes + count
            break
    if stop > first:
        blanks = _blanks(
            segment_path(place.directory, first_base), unit_bytes, min(stop - first, file_bytes // unit_bytes)
        )
        if blanks is None:
            return None
        first += blanks
    return replace(place, first_base=first_base, file_bytes=file_bytes, first=first, stop=stop)


def _blanks(path: str, unit_bytes: int, count: int) -> int | None:
    """Return how many entries a file begins with that only fill it up, ``None`` where it has no others."""
    entries = _read(path, unit_bytes, 0, count)
    if entries is None or (entries["size"] == PRE_BLANK_SIZE).all():
        return None
    return int(np.argmax(entries["size"] != PRE_BLANK_SIZE))


def _believed(entries: Structs, log_end: int) -> int | None:
    """Return how many of the first entries are such, in the order of the log; ``None`` if more follow behind zeros."""
    at, sizes = entries["log_offset"].astype(np.int64), entries["size"].astype(np.int64)
    is_blank = sizes == PRE_BLANK_SIZE
    good = (sizes > 0) & (at >= 0) & (is_blank | (at + sizes <= log_end))
    good[1:] &= is_blank[:-1] | (at[1:] > at[:-1])
    if good.all():
        return len(good)
    count = int(np.argmin(good))
    return None if not sizes[count] and sizes[count:].any() else count


def _read(path: str, unit_bytes: int, position: int, count: int) -> Structs | None:
    try:
        return np.fromfile(path, ENTRY_TYPES[unit_bytes], count, offset=position)
    except OSError:
        return None


def _read_written(path: str, unit_bytes: int, size: int) -> Structs | None:
    """Return the entries of a file without the hole behind them, which most of a queue of few messages is."""
    try:
        descriptor = OS_FILES.open(path)
    except OSError:
        return None
    try:
        return _read(path, unit_bytes, 0, -(-written_end(descriptor, size) // unit_bytes))
    finally:
        OS_FILES.close(descriptor)


def numbers(entries: Structs, name: str) -> Longs:
    """Return one number of entries, in the byte order of the machine."""
    return entries[name].astype(np.int64)
