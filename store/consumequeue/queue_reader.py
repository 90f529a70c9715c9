"""What a queue has: its messages from an offset on, its offset for a time, and single records, in any thread.

Rules of reading (``DefaultMessageStore.getMessage``; store.md §3.10, behaviour.md B.4.3):

- One file of the queue per call, and at most ``max_scan_bytes`` of its entries, so that a filter that matches little
  goes on in steps.
- The first message always fits. The batch ends at the caller's limits, or at 256 KiB / 32 messages for records within
  40 % of the memory from the log's end, else at 64 KiB / 8 messages.
- Records that follow each other in one file are one slice.
- The offset that counts is the entry's place, not the one inside the record.
- A batch queue yields whole records, from the one on that holds the offset; the limits count messages, and the next
  read begins behind the last record.

Rules of the offset for a time (``ConsumeQueue.getOffsetInQueueByTime``; store.md §3.6):

- The file first, then the entry; store times are read from the records.
- LOWER: the first entry stored at or after the time, UPPER: the last one stored at or before it. Entries whose record
  is gone count as too early, pre-blank entries as well.
- The result is brought into [min offset, max offset].
- In a batch queue the units hold the times, and the answer is the first offset of a unit. Java's search there is an own
  one, which may return the first unit behind the time for UPPER; the answers are kept.

``ColdRecords`` is for other threads: the maps that everybody else reads through belong to the thread of the store, and
a page that is not in memory would stop it. Here files are opened anew and read from, which lets other threads go on
meanwhile.
"""

import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Final, Literal, NamedTuple, Self

from ...common.message import BORN_HOST_V6
from ...common.record import MAGIC_V1, MAGIC_V2
from ..commitlog.commit_log import CommitLog
from ..files.files import Files
from ..files.store_config import BATCH_UNIT_BYTES, ENTRY_BYTES, StoreConfig
from .batch_queue import BatchQueue, Unit
from .consume_queue import ENTRY, PRE_BLANK_SIZE, ConsumeQueue, Entry

RECORD_START: Final = struct.Struct(">iI20xqi")  # total size, magic, log offset, sys flag
_STORED_AT: Final = struct.Struct(">q")
_LEAST_BYTES: Final = 91

AcceptsCode = Callable[[int], bool]
AcceptsRecord = Callable[[memoryview], bool]
StoredAt = Callable[[Entry], int]
Boundary = Literal["LOWER", "UPPER"]
_CHUNK_BYTES = 1 << 20


class ReadStatus(Enum):
    """What came of a read (``GetMessageStatus``)."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """What the caller takes at most."""

    max_messages: int = 32
    max_bytes: int = 128 << 20


@dataclass(slots=True)
class ReadResult:
    """Slices of the log, and where the queue stands; ``is_far_behind`` says that the end was read from disk."""

    status: ReadStatus
    next_offset: int
    min_offset: int
    max_offset: int
    records: list[memoryview]
    message_count: int = 0
    size: int = 0
    is_far_behind: bool = False


class QueueReader:
    """Reads queues over one log."""

    def __init__(self, log: CommitLog, config: StoreConfig) -> None:
        self._log = log
        self._config = config
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self.near_bytes = memory * config.in_memory_percent // 100

    def is_near(self, log_offset: int) -> bool:
        """Tell whether a record is close enough to the log's end to be in memory (``estimateInMemByCommitOffset``)."""
        return self._log.max_offset - log_offset <= self.near_bytes

    def record_at(self, log_offset: int, size: int | None = None) -> memoryview | None:
        """Return the record that begins at the position, ``None`` when none does (or none of that size)."""
        head = self._log.slice(log_offset, RECORD_START.size)
        if head is None:
            return None
        total_size, magic, named_offset, _ = RECORD_START.unpack_from(head)
        if magic not in (MAGIC_V1, MAGIC_V2) or named_offset != log_offset or size not in (None, total_size):
            return None
        return self._log.slice(log_offset, total_size)

    def entry_stored_at(self, entry: Entry) -> int:
        """Return the store time of an entry's record, -1 when it is not in the log."""
        head = self._log.slice(entry[0], _LEAST_BYTES)
        if head is None:
            return -1
        sys_flag = RECORD_START.unpack_from(head)[3]
        return _STORED_AT.unpack_from(head, 68 if sys_flag & BORN_HOST_V6 else 56)[0]

    def read(
        self,
        queue: ConsumeQueue,
        queue_offset: int,
        limits: ReadLimits,
        accepts: AcceptsCode | None = None,
        accepts_record: AcceptsRecord | None = None,
    ) -> ReadResult:
        """Read from the offset on."""
        outside = _outside(queue, queue_offset)
        if outside is not None:
            return outside
        most = limits.max_messages
        if accepts is not None or accepts_record is not None:
            most = max(self._config.max_scan_bytes // ENTRY_BYTES, most)
        entries = queue.read(queue_offset, most)
        if not entries:
            next_file = queue.file_start(queue_offset) + queue.file_entries
            return ReadResult(ReadStatus.OFFSET_FOUND_NULL, next_file, queue.min_offset, queue.max_offset, [])
        taken = self._take(entries, limits, accepts, accepts_record)
        return ReadResult(
            taken.status,
            queue_offset + taken.seen,
            queue.min_offset,
            queue.max_offset,
            self._slices(taken.runs),
            taken.message_count,
            taken.size,
            not self.is_near(taken.last_log_offset),
        )

    def read_batches(
        self,
        queue: BatchQueue,
        queue_offset: int,
        limits: ReadLimits,
        accepts: AcceptsCode | None = None,
        accepts_record: AcceptsRecord | None = None,
    ) -> ReadResult:
        """Read from the offset on, or from the batch that holds it."""
        outside = _outside(queue, queue_offset)
        if outside is not None:
            return outside
        slot = queue.slot_of(queue_offset)
        result = ReadResult(ReadStatus.NO_MATCHED_MESSAGE, queue_offset, queue.min_offset, queue.max_offset, [])
        if slot is None:
            result.status, result.next_offset = ReadStatus.OFFSET_FOUND_NULL, queue.max_offset
            return result
        last_scanned = queue_offset + max(self._config.max_scan_bytes // BATCH_UNIT_BYTES, limits.max_messages)
        for unit in queue.units_of_file(slot):
            if unit.first_offset >= last_scanned or self._is_full(result, unit, limits):
                break
            result.next_offset, result.is_far_behind = unit.next_offset, not self.is_near(unit.log_offset)
            if accepts is not None and not accepts(unit.tags_code):
                continue
            record = self.record_at(unit.log_offset, unit.size)
            if record is None:
                result.status = ReadStatus.MESSAGE_WAS_REMOVING if not result.records else result.status
            elif accepts_record is None or accepts_record(record):
                result.status = ReadStatus.FOUND
                result.records.append(record)
                result.message_count += unit.message_count
                result.size += unit.size
        return result

    def _is_full(self, result: ReadResult, unit: Unit, limits: ReadLimits) -> bool:
        """Tell whether the batch of an answer ends before the unit (``isTheBatchFull``)."""
        config = self._config
        if not result.records:
            return False
        is_near = self.is_near(unit.log_offset)
        most_count = config.max_memory_messages if is_near else config.max_disk_messages
        most_bytes = config.max_memory_bytes if is_near else config.max_disk_bytes
        return (
            result.message_count + unit.message_count > limits.max_messages
            or result.message_count >= most_count
            or result.size + unit.size > min(limits.max_bytes, most_bytes)
        )

    def _take(
        self, entries: bytes, limits: ReadLimits, accepts: AcceptsCode | None, accepts_record: AcceptsRecord | None
    ) -> "_Taken":
        """Go through the entries until the batch is full."""
        config, log = self._config, self._log
        log_min, log_max, near_from = log.min_offset, log.max_offset, log.max_offset - self.near_bytes
        near = min(limits.max_messages, config.max_memory_messages), min(limits.max_bytes, config.max_memory_bytes)
        far = min(limits.max_messages, config.max_disk_messages), min(limits.max_bytes, config.max_disk_bytes)
        runs: list[int] = []
        seen = count = total = skip_below = log_offset = 0
        run_end = -1
        status = ReadStatus.NO_MATCHED_MESSAGE
        for log_offset, size, code in ENTRY.iter_unpack(entries):
            if count:
                most_count, most_bytes = near if log_offset >= near_from else far
                if count >= most_count or total + size > most_bytes:
                    break
            seen += 1
            if size == PRE_BLANK_SIZE or log_offset < skip_below:
                continue
            if accepts is not None and not accepts(code):
                continue
            if log_offset < log_min or log_offset + size > log_max:
                status = status if count else ReadStatus.MESSAGE_WAS_REMOVING
                skip_below = log.next_file(log_offset)
                continue
            if accepts_record is not None and not accepts_record(self._slices([log_offset, log_offset + size])[0]):
                continue
            if log_offset != run_end:
                runs += (run_end, log_offset)
            run_end = log_offset + size
            count += 1
            total += size
            status = ReadStatus.FOUND
        runs.append(run_end)
        return _Taken(status, seen, count, total, runs[1:], log_offset)

    def _slices(self, runs: list[int]) -> list[memoryview]:
        """Return a slice for every run (start, end), cut where a file ends."""
        log = self._log
        slices: list[memoryview] = []
        view, base, end_of_file = None, 0, -1
        for start, end in zip(runs[::2], runs[1::2], strict=True):
            while start < end:
                if view is None or not base <= start < end_of_file:
                    base = start - start % log.file_bytes
                    end_of_file = base + log.file_bytes
                    view = log.segment_view(base)
                stop = min(end, end_of_file)
                slices.append(view[start - base : stop - base])
                start = stop
        return slices


class _Taken(NamedTuple):
    """The batch that a read has collected; ``runs`` holds start and end of bytes that follow each other."""

    status: ReadStatus
    seen: int
    message_count: int
    size: int
    runs: list[int]
    last_log_offset: int


def _outside(queue: ConsumeQueue | BatchQueue, queue_offset: int) -> ReadResult | None:
    low, high = queue.min_offset, queue.max_offset
    if high == 0:
        status, following = ReadStatus.NO_MESSAGE_IN_QUEUE, 0
    elif queue_offset < low:
        status, following = ReadStatus.OFFSET_TOO_SMALL, low
    elif queue_offset == high:
        status, following = ReadStatus.OFFSET_OVERFLOW_ONE, queue_offset
    elif queue_offset > high:
        status, following = ReadStatus.OFFSET_OVERFLOW_BADLY, high
    else:
        return None
    return ReadResult(status, following, low, high, [])


def offset_by_time(queue: ConsumeQueue, at_ms: int, boundary: Boundary, stored_at: StoredAt, log_min: int) -> int:
    """Return the offset for the time; ``stored_at`` reads the store time of an entry's record, -1 when it cannot."""
    if queue.max_offset <= queue.min_offset:
        return queue.min_offset
    times = _Times(queue, stored_at, log_min)
    low, high = times.file_range(at_ms, boundary)
    found = _search(times, at_ms, boundary, low, high)
    return min(max(found, queue.min_offset), queue.max_offset)


def batch_offset_by_time(queue: BatchQueue, at_ms: int, boundary: Boundary) -> int:
    """Return the offset for the time in a batch queue (``BatchConsumeQueue.getOffsetInQueueByTime``)."""
    starts = queue.first_slots()
    if not starts:
        return queue.min_offset
    first = next((slot for slot in reversed(starts) if _unit_time(queue, slot) <= at_ms), starts[0])
    last = min(first + starts.step, queue.slots.max_offset) - 1
    slot = last if at_ms >= _unit_time(queue, last) else _search_slots(queue, at_ms, boundary, range(first, last + 1))
    unit = queue.unit(slot) if slot is not None else None
    return min(max(unit.first_offset if unit is not None else 0, queue.min_offset), queue.max_offset)


def _search_slots(queue: BatchQueue, at_ms: int, boundary: Boundary, slots: range) -> int | None:
    """Return the slot that ``BatchConsumeQueue.binarySearchRight`` stops at."""
    left, right = slots[0], slots[-1]
    while left <= right:
        middle = (left + right) // 2
        time = _unit_time(queue, middle)
        if middle == right:
            return middle if time >= at_ms else None
        if middle == left:
            if time >= at_ms:
                return middle
            left = middle + 1
        elif boundary == "LOWER":
            left, right = (middle + 1, right) if time < at_ms else (left, middle)
        else:
            left, right = (middle, right) if time <= at_ms else (left, middle - 1)
    return None


def _unit_time(queue: BatchQueue, slot: int) -> int:
    unit = queue.unit(slot)
    return unit.stored_at_ms if unit is not None else -1


class _Times:
    """The store times of a queue's entries, -1 for those that count as too early."""

    def __init__(self, queue: ConsumeQueue, stored_at: StoredAt, log_min: int) -> None:
        self._queue = queue
        self._stored_at = stored_at
        self._log_min = log_min

    def at(self, queue_offset: int) -> int:
        """Return the store time of an entry."""
        entry = self._queue.entry(queue_offset)
        if entry is None or entry[0] < self._log_min or entry[1] == PRE_BLANK_SIZE:
            return -1
        return self._stored_at(entry)

    def file_range(self, at_ms: int, boundary: Boundary) -> tuple[int, int]:
        """Return first and last offset of the file to search in."""
        queue = self._queue
        step = queue.file_entries
        first = max(queue.first_base, 0) // ENTRY_BYTES
        ranges = [(start, min(start + step, queue.max_offset) - 1) for start in range(first, queue.max_offset, step)]
        chosen = ranges[-1]
        if boundary == "LOWER":
            chosen = next((one for one in ranges if self.at(one[1]) >= at_ms), chosen)
        else:
            chosen = next((one for one in reversed(ranges) if self.at(one[0]) <= at_ms), ranges[0])
        return max(chosen[0], queue.min_offset), chosen[1]


def _search(times: _Times, at_ms: int, boundary: Boundary, low: int, high: int) -> int:
    if times.at(high) < at_ms:
        return high + 1 if boundary == "LOWER" else high
    if times.at(low) > at_ms:
        return low if boundary == "LOWER" else 0
    if boundary == "LOWER":
        return _first(low, high + 1, lambda queue_offset: times.at(queue_offset) >= at_ms)
    return _first(low, high + 1, lambda queue_offset: times.at(queue_offset) > at_ms) - 1


def _first(low: int, high: int, is_reached: Callable[[int], bool]) -> int:
    while low < high:
        middle = (low + high) // 2
        if is_reached(middle):
            high = middle
        else:
            low = middle + 1
    return low


class ColdRecords:
    """A context manager that keeps the files open which it has read from."""

    def __init__(self, files: Files, log: CommitLog) -> None:
        self._files = files
        self._log = log
        self._open: dict[int, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for descriptor in self._open.values():
            self._files.close(descriptor)
        self._open.clear()

    def read(self, log_offset: int, size: int) -> bytes | None:
        """Return the record of that size at the position, ``None`` when there is none (raises ``OSError``)."""
        if size < RECORD_START.size or not self._log.holds(log_offset, size):
            return None
        data = self._read_bytes(log_offset, size)
        if len(data) != size:
            return None
        total_size, magic, named_offset, _ = RECORD_START.unpack_from(data)
        return data if (total_size, named_offset) == (size, log_offset) and magic in (MAGIC_V1, MAGIC_V2) else None

    def walk(self, start: int, end: int, text: bytes) -> Iterator[bytes]:
        """Yield the records that hold a text, from a position on at which one begins (raises ``OSError``)."""
        while start < end:
            file_end = self._log.next_file(start)
            chunk = self._read_bytes(start, min(_CHUNK_BYTES, min(end, file_end) - start))
            position, has_text = 0, text in chunk
            for size in _whole_records(chunk, start):
                if has_text and chunk.find(text, position, position + size) >= 0:
                    yield chunk[position : position + size]
                position += size
            if not position:
                size = _record_size(chunk, 0, start)  # more than a chunk, or none: the blank that ends a file
                data = self.read(start, size)
                if data is not None and text in data:
                    yield data
                position = size or file_end - start
            start += position

    def _read_bytes(self, log_offset: int, size: int) -> bytes:
        base = log_offset - log_offset % self._log.file_bytes
        try:
            descriptor = self._open.get(base)
            if descriptor is None:
                descriptor = self._open[base] = self._files.open(self._log.paths.path_of(base))
        except FileNotFoundError:  # it has just been removed
            return b""
        return self._files.pread(descriptor, size, log_offset - base)


def _whole_records(chunk: bytes, log_offset: int) -> Iterator[int]:
    """Yield the sizes of the records that are whole in a piece of the log."""
    position = 0
    while (size := _record_size(chunk, position, log_offset)) and position + size <= len(chunk):
        yield size
        position += size


def _record_size(chunk: bytes, position: int, log_offset: int) -> int:
    """Return the size of the record at a position, 0 when none begins there."""
    if position + RECORD_START.size > len(chunk):
        return 0
    size, magic, named_offset, _ = RECORD_START.unpack_from(chunk, position)
    return size if magic in (MAGIC_V1, MAGIC_V2) and named_offset == log_offset + position and size > 0 else 0
