"""What can be read of the queues of a store: by queue offset, by time, and single records of the log.

Rules of reading (``DefaultMessageStore.getMessage``; store.md §3.10, behaviour.md B.4.3):

- One file of the queue per call, and at most ``max_scan_bytes`` of its entries, so that a filter that matches little
  goes on in steps.
- The first message always fits. The batch ends at the caller's limits, or at 256 KiB / 32 messages for records within
  40 % of the memory from the log's end, else at 64 KiB / 8 messages.
- Records that follow each other in one file are one slice.
- The offset that counts is the entry's place, not the one inside the record.
- A batch queue yields whole records, from the one on that holds the offset; the limits count messages, and the next
  read begins behind the last record.

It writes nothing and knows neither commits nor flushes; queues hold only what may be read.
"""

import os
import struct
from collections.abc import Callable, Iterator
from enum import Enum
from itertools import chain
from typing import Final, NamedTuple, Protocol

from msgspec import Struct

from ...common.message import BORN_HOST_V6
from ...common.properties import codecs, to_int
from ...common.record import MAGIC_V1, MAGIC_V2
from ..commitlog.cold_records import RECORD_START
from ..commitlog.commit_log import CommitLog
from ..files.store_config import BATCH_UNIT_BYTES, ENTRY_BYTES, StoreConfig
from .appended import Appended
from .batch_queue import NO_MIN_OFFSET, BatchQueue, Unit
from .consume_queue import ENTRY, PRE_BLANK_SIZE, Entry
from .entry_filters import INT_CODES, SMALL_BYTES, RecordFilter, TagCodeFilter
from .offset_by_time import Boundary, batch_offset_by_time, offset_by_time
from .queue_table import QueueTable

_STORED_AT: Final = struct.Struct(">q")
_LEAST_BYTES: Final = 91
_FEW_BOUNDS: Final = 8
_SHORT_BYTES: Final = 512

AcceptsCode = Callable[[int], bool]
"""Told the tags code of an entry, as Java's int."""
AcceptsRecord = Callable[[memoryview, int, int], bool]
"""Told some bytes of the log, and where in them a record begins and ends."""


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
    OFFSET_RESET = "OFFSET_RESET"
    """Nothing was read: an administrator has moved the reader (``broker/group/groups.py``)."""


class ReadLimits(Struct, frozen=True):
    """What the caller takes at most."""

    max_messages: int = 32
    max_bytes: int = 128 << 20


class ReadResult(Struct):
    """Slices of the log, and where the queue stands; ``is_far_behind`` says that the end was read from disk."""

    status: ReadStatus
    next_offset: int
    min_offset: int
    max_offset: int
    records: list[memoryview]
    message_count: int = 0
    size: int = 0
    is_far_behind: bool = False


class QueueSpan(Protocol):
    """A queue, as far as it tells where it begins and ends now."""

    @property
    def queue_id(self) -> int:
        """The number of the queue."""
        ...

    @property
    def min_offset(self) -> int:
        """The first offset whose message is still there."""
        ...

    @property
    def max_offset(self) -> int:
        """The offset that the next readable message will have."""
        ...


class QueueReader:
    """The reading calls of ``DefaultMessageStore`` but the look-up by key."""

    def __init__(self, log: CommitLog, queues: QueueTable, config: StoreConfig) -> None:
        self._log = log
        self._queues = queues
        self._config, self.near_bytes = config, 0
        self.reconfigure(config)

    def __repr__(self) -> str:
        return f"<QueueReader of {self._log}>"

    def reconfigure(self, config: StoreConfig) -> None:
        """Use other limits from now on."""
        self._config = config
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self.near_bytes = memory * config.in_memory_percent // 100

    def read(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        limits: ReadLimits,
        accepts: AcceptsCode | None = None,
        accepts_record: AcceptsRecord | None = None,
    ) -> ReadResult:
        """Read messages of a queue from an offset on (``getMessage``).

        ``accepts`` sees the tags code of each entry, ``accepts_record`` the bytes of each record that passed it.
        """
        layout = INT_CODES
        if accepts is not None and self._queues.ext is not None:
            accepts, layout = self._queues.ext.accepting(topic, queue_id, accepts), ENTRY
        queue = self._queues.by_key.get((topic, queue_id))
        if queue is None:
            return self._read_batches(topic, queue_id, queue_offset, limits, (accepts, accepts_record))
        low, high = queue.min_offset, queue.max_offset
        if not low <= queue_offset < high:
            return _outside(queue_offset, low, high)
        most = limits.max_messages
        if accepts is not None or accepts_record is not None:
            most = max(self._config.max_scan_bytes // ENTRY_BYTES, most)
        entries = queue.read(queue_offset, most)
        if not entries:
            next_file = queue.file_start(queue_offset) + queue.file_entries
            return ReadResult(ReadStatus.OFFSET_FOUND_NULL, next_file, low, high, [])
        taken = None
        if isinstance(accepts, TagCodeFilter):
            taken = self._take_found(entries, limits, accepts) if accepts_record is None else None
            accepts = accepts.codes.__contains__  # no call of Python for each entry
        elif accepts is None and (accepts_record is None or isinstance(accepts_record, RecordFilter)):
            taken = self._take_found(entries, limits, accepts_record)
        if taken is None:
            taken = self._take(layout.iter_unpack(entries), limits, accepts, accepts_record)
        is_far_behind = self._log.max_offset - taken.last_log_offset > self.near_bytes
        found = self._slices(taken.runs, taken.size), taken.message_count, taken.size
        return ReadResult(taken.status, queue_offset + taken.seen, low, high, *found, is_far_behind)

    def read_newest(self, record: Appended, accepts: AcceptsCode | None = None) -> ReadResult | None:
        """Return what ``read`` finds at a record that is new in its queue, without a look into the queue's files.

        Its entry may still have to be written. ``None`` when it is not the last, not wanted, or stands among batches:
        ``read`` is to be asked then.
        """
        queue = record.queue
        if queue is None or not record.is_newest:
            return None
        if accepts is not None and not accepts(to_int(record.tags_code)):
            return None
        data = self._log.slice(record.log_offset, record.size)
        if data is None:
            return None
        low, high, is_far_behind = queue.min_offset, queue.next_offset, not self.is_near(record.log_offset)
        return ReadResult(ReadStatus.FOUND, high, low, high, [data], 1, record.size, is_far_behind)

    def _read_batches(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        limits: ReadLimits,
        accepting: tuple[AcceptsCode | None, AcceptsRecord | None],
    ) -> ReadResult:
        """Read from the offset on, or from the batch that holds it; there may be no such queue."""
        queue = self._queues.batches.by_key.get((topic, queue_id))
        if queue is None:
            return ReadResult(ReadStatus.NO_MESSAGE_IN_QUEUE, 0, self.min_offset(topic, queue_id), 0, [])
        if not queue.min_offset <= queue_offset < queue.max_offset:
            return _outside(queue_offset, queue.min_offset, queue.max_offset)
        accepts, accepts_record = accepting
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
            if accepts is not None and not accepts(to_int(unit.tags_code)):
                continue
            record = self.record_at(unit.log_offset, unit.size)
            if record is None:
                result.status = ReadStatus.MESSAGE_WAS_REMOVING if not result.records else result.status
            elif accepts_record is None or accepts_record(record, 0, unit.size):
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
        self, entries: Iterator[Entry], limits: ReadLimits, accepts: AcceptsCode | None, wants: AcceptsRecord | None
    ) -> "_Taken":
        """Go through the entries until the batch is full."""
        config, log = self._config, self._log
        log_min, log_max, near_from = log.min_offset, log.max_offset, log.max_offset - self.near_bytes
        near = min(limits.max_messages, config.max_memory_messages), min(limits.max_bytes, config.max_memory_bytes)
        far = min(limits.max_messages, config.max_disk_messages), min(limits.max_bytes, config.max_disk_bytes)
        runs: list[int] = []
        seen = count = total = skip_below = log_offset = 0
        run_end, view, base, file_end = -1, memoryview(b""), 0, -1
        status = ReadStatus.NO_MATCHED_MESSAGE
        for log_offset, size, code in entries:
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
            if wants is not None:
                if not base <= log_offset < file_end:
                    base = log_offset - log_offset % log.file_bytes
                    file_end, view = base + log.file_bytes, log.segment_view(base)
                if not wants(view, log_offset - base, log_offset - base + size):
                    continue
            if log_offset != run_end:
                runs += (run_end, log_offset)
            run_end = log_offset + size
            count += 1
            total += size
            status = ReadStatus.FOUND
        runs.append(run_end)
        return _Taken(status, seen, count, total, runs[1:], log_offset)

    def _take_found(
        self, entries: bytes, limits: ReadLimits, wanted: TagCodeFilter | RecordFilter | None
    ) -> "_Taken | None":
        """Do what ``_take`` does where the limit of messages alone decides; ``None`` where it may be otherwise.

        With tags a pull that gets 32 of 128 takes half of the broker's time, with an expression a third. A read of 32
        that are all wanted takes half of its time; only compiled code finds these.
        """
        config, log = self._config, self._log
        near_from, last_at = log.max_offset - self.near_bytes, len(entries) - ENTRY_BYTES
        first, last = ENTRY.unpack_from(entries)[0], ENTRY.unpack_from(entries, last_at)[0]
        is_near = first >= near_from
        if is_near != (last >= near_from):
            return None
        most = min(limits.max_messages, config.max_memory_messages if is_near else config.max_disk_messages)
        most_bytes = min(limits.max_bytes, config.max_memory_bytes if is_near else config.max_disk_bytes)
        if isinstance(wanted, TagCodeFilter):
            found = wanted.find_runs(entries, most)
        elif wanted is None:
            found = None if codecs is None else codecs.find_tagged(entries, None, most)
        else:
            base = first - first % log.file_bytes
            if not log.min_offset <= first < log.max_offset:
                return None
            found = wanted.find_runs(entries, log.segment_view(base)[: log.max_offset - base], base, most)
        if found is None:
            return None
        bounds, count, size, seen = found
        if count and (bounds[0] < log.min_offset or bounds[-1] > log.max_offset or size + SMALL_BYTES > most_bytes):
            return None
        status = ReadStatus.FOUND if count else ReadStatus.NO_MATCHED_MESSAGE
        if seen * ENTRY_BYTES < last_at:
            last = ENTRY.unpack_from(entries, seen * ENTRY_BYTES)[0]
        return _Taken(status, seen, count, size, bounds, last)

    def _slices(self, runs: list[int], size: int) -> list[memoryview]:
        """Return a slice for every run (start, end), cut where a file ends.

        Many short ones are one copy where that is compiled: 32 slices and to join them took 9 us, of 27 of a pull.
        """
        log = self._log
        if codecs is not None and len(runs) > _FEW_BOUNDS and size <= _SHORT_BYTES * len(runs):
            base = runs[0] - runs[0] % log.file_bytes
            joined = codecs.join_runs(log.segment_view(base), base, runs, size)
            if joined is not None:
                return [memoryview(joined)]
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

    def record_at(self, log_offset: int, size: int | None = None) -> memoryview | None:
        """Return the record that begins at the position, ``None`` when none does (or none of that size)."""
        head = self._log.slice(log_offset, RECORD_START.size)
        if head is None:
            return None
        total_size, magic, named_offset, _ = RECORD_START.unpack_from(head)
        if magic not in (MAGIC_V1, MAGIC_V2) or named_offset != log_offset or size not in (None, total_size):
            return None
        return self._log.slice(log_offset, total_size)

    def is_near(self, log_offset: int) -> bool:
        """Tell whether a record is close enough to the log's end to be in memory (``estimateInMemByCommitOffset``)."""
        return self._log.max_offset - log_offset <= self.near_bytes

    def entry_stored_at(self, entry: Entry) -> int:
        """Return the store time of an entry's record, -1 when it is not in the log."""
        head = self._log.slice(entry[0], _LEAST_BYTES)
        if head is None:
            return -1
        sys_flag = RECORD_START.unpack_from(head)[3]
        return _STORED_AT.unpack_from(head, 68 if sys_flag & BORN_HOST_V6 else 56)[0]

    def first_stored_at(self) -> int:
        """Return the store time of the first record of the log, -1 when there is none."""
        return self.entry_stored_at((self._log.min_offset, 0, 0))

    def file_start_before(self, at_ms: int) -> int:
        """Return the start of the last file of the log whose first record was stored before a time, or of the log."""
        log = self._log
        base = log.max_offset - log.max_offset % log.file_bytes
        while base > log.min_offset and not 0 <= self.entry_stored_at((base, 0, 0)) < at_ms:
            base -= log.file_bytes
        return max(base, log.min_offset)

    def entries(self, topic: str, queue_id: int, queue_offset: int, count: int) -> list[Entry]:
        """Return up to ``count`` entries of a queue from an offset on, fewer where one of its files ends."""
        queue = self._queues.by_key.get((topic, queue_id))
        return [] if queue is None else list(ENTRY.iter_unpack(queue.read(queue_offset, count)))

    def queues(self) -> Iterator[tuple[str, int]]:
        """Yield topic and id of every queue that has or had messages."""
        queues = chain(self._queues, self._queues.batches)
        return ((queue.topic, queue.queue_id) for queue in queues if queue.max_offset)

    def batch_topics(self) -> dict[str, int]:
        """Return the topics whose queues are batch queues, and how many each has on disk."""
        counts = dict.fromkeys(self._queues.batch_topics, 0)
        for queue in self._queues.batches:
            counts[queue.topic] = max(counts.get(queue.topic, 0), queue.queue_id + 1)
        return counts

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first offset whose message is still there, that of a batch queue without messages is -1."""
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return NO_MIN_OFFSET if topic in self._queues.batch_topics else 0
        return queue.min_offset

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset that the next readable message will have."""
        queue = self._queues.get(topic, queue_id)
        return queue.max_offset if queue is not None else 0

    @property
    def queue_change_count(self) -> int:
        """A number that is another one after queues have come or gone."""
        return self._queues.change_count

    def spans(self, topic: str, count: int) -> tuple[QueueSpan, ...]:
        """Return the queues of a topic with ids below ``count`` that exist; of use while none has come or gone."""
        found = (self._queues.get(topic, queue_id) for queue_id in range(count))
        return tuple(queue for queue in found if queue is not None)

    def stored_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the store time of a message, -1 when there is none."""
        queue = self._queues.get(topic, queue_id)
        entry = queue.entry(queue_offset) if queue is not None and queue_offset >= queue.min_offset else None
        return self.entry_stored_at(entry) if entry is not None else -1

    def earliest_stored_at(self, topic: str, queue_id: int) -> int:
        """Return the store time of a queue's first message, -1 when it is empty."""
        return self.stored_at(topic, queue_id, self.min_offset(topic, queue_id))

    def offset_by_time(self, topic: str, queue_id: int, at_ms: int, boundary: Boundary = "LOWER") -> int:
        """Return the offset that belongs to a time (``getOffsetInQueueByTime``)."""
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return 0
        if isinstance(queue, BatchQueue):
            return batch_offset_by_time(queue, at_ms, boundary)
        return offset_by_time(queue, at_ms, boundary, self.entry_stored_at, self._log.min_offset)

    def queue_counts_since(self, at_ms: int, is_wanted: Callable[[str, int], bool]) -> dict[str, int]:
        """Return topics of wanted queues whose newest message is not from before a time.

        With each comes how many queues there are up to the last of these.
        """
        counts: dict[str, int] = {}
        for topic, queue_id in self.queues():
            if is_wanted(topic, queue_id):
                newest = self.max_offset(topic, queue_id) - 1
                if self.stored_at(topic, queue_id, newest) >= at_ms:
                    counts[topic] = max(counts.get(topic, 0), queue_id + 1)
        return counts

    def is_in_memory(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Tell whether a message exists and lies near the log's end (``checkInMemByConsumeOffset``)."""
        queue = self._queues.get(topic, queue_id)
        entry = queue.entry(queue_offset) if queue is not None and queue_offset >= queue.min_offset else None
        return entry is not None and self.is_near(entry[0])

    def topics_since(self, at_ms: int, met_from: int, is_known: Callable[[str], bool]) -> dict[str, int]:
        """Return unknown topics whose newest message lies at ``met_from`` or behind and is not from before a time.

        With each comes the number of its queues. Batch topics are left out: ``batch_topics`` has them.
        """
        found: set[str] = set()
        counts: dict[str, int] = {}
        for queue in self._queues:
            if queue.max_offset and not is_known(queue.topic):
                counts[queue.topic] = max(counts.get(queue.topic, 0), queue.queue_id + 1)
                entry = queue.entry(queue.max_offset - 1)
                is_met = entry is not None and entry[0] >= met_from
                if entry is not None and is_met and self.entry_stored_at(entry) >= at_ms:
                    found.add(queue.topic)
        return {topic: count for topic, count in counts.items() if topic in found}


class _Taken(NamedTuple):
    """The batch that a read has collected; ``runs`` holds start and end of bytes that follow each other."""

    status: ReadStatus
    seen: int
    message_count: int
    size: int
    runs: list[int]
    last_log_offset: int


def _outside(queue_offset: int, low: int, high: int) -> ReadResult:
    if high == 0:
        status, following = ReadStatus.NO_MESSAGE_IN_QUEUE, 0
    elif queue_offset < low:
        status, following = ReadStatus.OFFSET_TOO_SMALL, low
    elif queue_offset == high:
        status, following = ReadStatus.OFFSET_OVERFLOW_ONE, queue_offset
    else:
        status, following = ReadStatus.OFFSET_OVERFLOW_BADLY, high
    return ReadResult(status, following, low, high, [])
