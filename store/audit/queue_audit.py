"""The audit of consume queues and batch queues: every entry against its record, and every record against its entry.

Rules (store.md §2.5, §3):

- Slot n of a queue holds the record whose queue offset is n. Blocks of records are compared with the bytes that their
  entries must have; only where these differ are they looked at one by one.
- Entries whose records lie before the log's first file have expired. Pre-blank entries are skipped.
- When the numbering of a queue begins anew in the log (its topic was deleted and came back), the queue holds the new
  one: what was missing of the old one is forgiven.
- Entries that the end of a queue lacks are a lag while a broker runs or after a kill, else damage.

A unit of a batch queue (store.md §3.8) has no place that follows from a record, so units and records are met in order:
a unit before the next record's has lost its record, a record before the next unit's has no unit.
"""

from collections.abc import Iterator
from typing import Final, Protocol

import numpy as np

from ...common.message import INNER_BATCH, TRANSACTION_PREPARED
from ...common.properties import parse_properties
from ...common.record import decode_record
from ..commitlog.record_blocks import Block, Longs
from ..consumequeue.batch_queue import UNIT, count_of, encode_unit
from ..consumequeue.consume_queue import ENTRY, PRE_BLANK_SIZE
from ..files.segments import SegmentFile, segment_path
from ..files.store_config import BATCH_UNIT_BYTES, ENTRY_BYTES
from ..recovery.dispatcher import is_entry_of_other_levels
from .audit_report import Finding, Hit, ReadFiles
from .block_keys import BlockKeys
from .log_audit import LogAudit

_ENTRY_TYPE: Final = np.dtype([("log_offset", ">i8"), ("size", ">i4"), ("code", ">i8")])
_READ_ENTRIES: Final = 65_536
_DATA_BYTES: Final = 65_536  # little, since a hole follows the few entries of most queues
_MOST_KEPT: Final = 16
_MOST_GAP: Final = 1 << 20
_KIND: Final = "queue"
_LEAST_EXT_ADDRESS: Final = -2147483648
_BATCH_KIND: Final = "batch queue"
_UnitValues = tuple[int, int, int, int, int, int, int, int]


class Topics(Protocol):
    """What is known of topics besides their queues."""

    def may_lack_queues(self, topic: str) -> bool:
        """Tell whether a topic was deleted, so that its records have no entries."""
        ...


class AuditedQueue:
    """One queue's files, and how far its entries were compared; ``cursor`` is the next slot."""

    def __init__(self, directory: str, topic: str, queue_id: int) -> None:
        self.directory = directory
        self.topic = topic
        self.queue_id = queue_id
        self.bases: list[int] = []
        self.file_bytes = 0
        self.is_usable = True
        self.cursor = -1
        self.begin = -1
        self.first_log_offset = -1
        self.absent: list[tuple[int, bytes, Finding]] = []
        self.absent_count = 0
        self.kept: list[Finding] = []
        self.kept_count = 0
        self.began_anew = 0

    def __repr__(self) -> str:
        return f"<AuditedQueue {self.topic}-{self.queue_id} at {self.cursor}>"

    @property
    def first(self) -> int:
        """The first slot that has a file."""
        return self.bases[0] // ENTRY_BYTES if self.bases else 0

    @property
    def end(self) -> int:
        """The slot behind the last file."""
        return (self.bases[-1] + self.file_bytes) // ENTRY_BYTES if self.bases else 0

    def place(self, slot: int) -> tuple[str, int]:
        """Return path and position of a slot."""
        position = slot * ENTRY_BYTES
        base = position - position % self.file_bytes if self.file_bytes else 0
        return segment_path(self.directory, base), position - base


class QueueAudit:
    """Compares the records of blocks, in order, with the entries of all queues; then ``finish``."""

    def __init__(self, reader: ReadFiles, log: LogAudit) -> None:
        self._reader = reader
        self._log, self._report = log, log.report
        self._queues: dict[tuple[str, int], AuditedQueue] = {}
        self.root = ""

    def add(self, queue: AuditedQueue) -> None:
        """Take a queue that has files."""
        self._queues[queue.topic, queue.queue_id] = queue

    def compare(self, block: Block, keys: BlockKeys, topics: tuple[Longs, list[str]], without: set[str]) -> None:
        """Compare a block; ``without`` are topics that have no queues of this kind."""
        numbers, names = topics
        rows = np.flatnonzero(block.number("sys_flag") & (INNER_BATCH | TRANSACTION_PREPARED) == 0)
        if without:
            rows = rows[~np.isin(numbers[rows], [number for number, name in enumerate(names) if name in without])]
        queue_ids = block.number("queue_id").astype(np.int64)
        order = rows[np.argsort((numbers[rows] << 32) + queue_ids[rows], kind="stable")]
        expected = _expected(block, keys.tags_codes())[order]
        offsets = block.number("queue_offset")[order]
        places = (numbers[order] << 32) + queue_ids[order]
        changes = np.flatnonzero(places[1:] != places[:-1]) + 1
        gapless = np.concatenate(([0], np.cumsum(np.diff(offsets) != 1))) if len(offsets) else offsets
        data = expected.tobytes()
        for start, end in zip([0, *changes.tolist()], [*changes.tolist(), len(order)], strict=True):
            if start == end:
                continue
            row = int(order[start])
            queue = self._obtain(names[int(numbers[row])], int(queue_ids[row]))
            if queue.first_log_offset < 0:
                queue.first_log_offset = int(expected["log_offset"][start])
            entries, first = data[start * ENTRY_BYTES : end * ENTRY_BYTES], int(offsets[start])
            if queue.cursor < 0:
                self._begin_at(queue, first, entries[:ENTRY_BYTES])
            is_run = gapless[start] == gapless[end - 1] and queue.cursor == first and not queue.absent_count
            if is_run and self._read(queue, first, end - start) == entries:
                queue.cursor += end - start
                self._report.counts["queue entries"] += end - start
                continue
            for at in range(start, end):
                one = entries[(at - start) * ENTRY_BYTES :][:ENTRY_BYTES]
                self._compare_one(queue, int(offsets[at]), one, keys.unique_key(int(order[at])))

    def finish(self, topics: Topics) -> None:
        """Look at what no record of the log belongs to."""
        self._report.counts["queues"] += sum(1 for queue in self._queues.values() if queue.bases)
        for queue in self._queues.values():
            if not queue.bases:
                self._finish_absent(queue, topics)
            elif queue.is_usable:
                if queue.cursor < 0:
                    self._begin(queue, self._data_end(queue), must_have_expired=True)
                self._check_rest(queue)
                self._flush(queue)
            if queue.directory in self._report.directories:
                self._report.wrong_queues[queue.directory] = self._expired_end(queue)

    def _expired_end(self, queue: AuditedQueue) -> int | None:
        """Return up to where the entries have expired when no record of the queue will be left, else ``None``."""
        cut_at = self._log.end if self._report.cut_at is None else self._report.cut_at
        if 0 <= queue.first_log_offset < cut_at or not queue.bases:
            return None
        return queue.begin if queue.begin >= 0 else self._data_end(queue)

    def _obtain(self, topic: str, queue_id: int) -> AuditedQueue:
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            queue = AuditedQueue(f"{self.root}/{topic}/{queue_id}", topic, queue_id)
            self._queues[topic, queue_id] = queue
        return queue

    # --- one record

    def _compare_one(self, queue: AuditedQueue, queue_offset: int, expected: bytes, key: str | None) -> None:
        if not queue.is_usable:
            return
        if queue.cursor < 0:
            self._begin_at(queue, queue_offset, expected)
        found = self._read(queue, queue_offset, 1) if queue_offset >= 0 else b""
        log_offset, size, _ = ENTRY.unpack(expected)
        hit = Hit(queue.topic, queue.queue_id, queue_offset, key)
        if found == expected:
            self._match(queue, queue_offset)
            return
        path, position = queue.place(max(queue_offset, 0))
        at_cursor = self._read(queue, queue.cursor, 1) if queue.cursor >= 0 and queue.cursor != queue_offset else b""
        if at_cursor[:12] == expected[:12]:
            path, position = queue.place(queue.cursor)
            reason = f"the record says queue offset {queue_offset}, its entry stands at {queue.cursor}"
            self._match(queue, queue.cursor)
            self._keep(queue, Finding(_KIND, path, reason, position, log_offset, [hit], 1))
            return
        if not found.strip(b"\0"):
            finding = Finding(_KIND, path, "a record has no entry", position, log_offset, [hit], 1)
            queue.absent_count += 1
            if len(queue.absent) < _MOST_KEPT:
                queue.absent.append((queue_offset, expected, finding))
            return
        if size and (self._is_ext(found, expected) or is_entry_of_other_levels(queue.topic, found, expected)):
            self._match(queue, queue_offset)
            return
        reason = _difference(ENTRY.unpack(found), ENTRY.unpack(expected))
        self._keep(queue, Finding(_KIND, path, reason, position, log_offset, [hit], 1))
        if queue_offset >= queue.cursor:
            self._skip_to(queue, queue_offset)
            queue.cursor = queue_offset + 1

    def _match(self, queue: AuditedQueue, slot: int) -> None:
        """The slot holds its record: what stood before it and was not met has none, unless the numbering began anew."""
        if slot < queue.cursor or any(slot <= absent for absent, _, _ in queue.absent):
            queue.began_anew += 1
            queue.kept_count = queue.absent_count = 0
            queue.kept.clear()
            queue.absent.clear()
        else:
            self._skip_to(queue, slot)
        self._confirm_absent(queue)
        queue.cursor = slot + 1
        self._report.counts["queue entries"] += 1

    def _confirm_absent(self, queue: AuditedQueue) -> None:
        """Entries follow those that were missing: these are no lag, unless a broker has written them just now."""
        for slot, expected, finding in queue.absent:
            if self._read(queue, slot, 1) != expected:
                self._keep(queue, finding)
        queue.kept_count += queue.absent_count - len(queue.absent)
        queue.absent.clear()
        queue.absent_count = 0

    def _skip_to(self, queue: AuditedQueue, slot: int) -> None:
        for at, (log_offset, size, _) in self._entries(queue, queue.cursor, min(slot, queue.cursor + _MOST_GAP)):
            if size:
                self._orphan(queue, at, log_offset)

    def _orphan(self, queue: AuditedQueue, slot: int, log_offset: int) -> None:
        """Report an entry without a record; where the record is known to be damaged, say whose it was."""
        hit = Hit(queue.topic, queue.queue_id, slot)
        damage = self._log.finding_at(log_offset)
        if damage is not None:
            damage.add_hit(hit)
            return
        path, position = queue.place(slot)
        self._keep(queue, Finding(_KIND, path, "no record belongs to the entry", position, log_offset, [hit], 1))

    def _is_ext(self, found: bytes, expected: bytes) -> bool:
        """Tell whether the entry is right and its code is the address of an extended unit (store.md §3.7)."""
        return found[:12] == expected[:12] and ENTRY.unpack(found)[2] < _LEAST_EXT_ADDRESS

    def _keep(self, queue: AuditedQueue, finding: Finding) -> None:
        queue.kept_count += 1
        if len(queue.kept) < _MOST_KEPT:
            queue.kept.append(finding)

    # --- before the first record and behind the last

    def _begin_at(self, queue: AuditedQueue, queue_offset: int, expected: bytes) -> None:
        """Begin at the first record that the log holds, or where the entries have not expired if that has none."""
        if not queue.bases or not queue.is_usable:
            return
        is_known = self._read(queue, queue_offset, 1) == expected
        self._begin(queue, queue_offset if is_known else queue.end, must_have_expired=is_known)

    def _begin(self, queue: AuditedQueue, slot: int, *, must_have_expired: bool) -> None:
        """Go to the slot; the entries before it belong to no record that is left."""
        queue.cursor = queue.begin = slot
        is_blank = True
        for at, (log_offset, size, _) in self._entries(queue, queue.first, slot):
            is_blank &= size == PRE_BLANK_SIZE and log_offset == 0
            if is_blank:
                self._report.counts["pre-blank entries"] += 1
            elif 0 <= log_offset < self._log.start and size > 0:
                self._report.counts["expired entries"] += 1
            elif must_have_expired and not self._is_beyond(log_offset):
                self._orphan(queue, at, log_offset)
            else:
                queue.cursor = queue.begin = at
                return

    def _is_beyond(self, log_offset: int) -> bool:
        return self._report.is_open and log_offset >= self._log.end

    def _check_rest(self, queue: AuditedQueue) -> None:
        end = self._data_end(queue)
        for at, (log_offset, size, code) in self._entries(queue, queue.cursor, end):
            if not (log_offset or size or code):
                continue
            if log_offset >= self._log.end and size > 0 and self._log.finding_at(log_offset) is None:
                self._beyond(queue, at, log_offset)
            elif size > 0 and log_offset >= self._log.start:
                self._orphan(queue, at, log_offset)
            else:
                path, position = queue.place(at)
                self._keep(queue, Finding(_KIND, path, "the bytes are no entry", position))

    def _beyond(self, queue: AuditedQueue, slot: int, log_offset: int) -> None:
        if self._report.is_open:
            self._report.counts["entries behind the end of the log"] += 1
            return
        path, position = queue.place(slot)
        hit = Hit(queue.topic, queue.queue_id, slot)
        reason = "the entry points behind the end of the log"
        self._keep(queue, Finding(_KIND, path, reason, position, log_offset, [hit], 1))

    def _finish_absent(self, queue: AuditedQueue, topics: Topics) -> None:
        if topics.may_lack_queues(queue.topic) and not self._report.is_open:
            self._report.counts["records of deleted topics"] += queue.absent_count
            return
        self._flush(queue)

    def _flush(self, queue: AuditedQueue) -> None:
        if self._report.is_open:
            self._report.counts["records without queue entry yet"] += queue.absent_count
        else:
            self._confirm_absent(queue)
        for finding in queue.kept:
            self._report.add(finding)
        self._report.add_more(_KIND, queue.kept_count - len(queue.kept))
        self._report.counts["queues that began anew"] += bool(queue.began_anew)

    # --- reading

    def _read(self, queue: AuditedQueue, slot: int, count: int) -> bytes:
        parts: list[bytes] = []
        while count > 0 and queue.first <= slot < queue.end:
            path, position = queue.place(slot)
            size = min(count * ENTRY_BYTES, queue.file_bytes - position)
            parts.append(self._reader.read(path, size, position))
            slot += size // ENTRY_BYTES
            count -= size // ENTRY_BYTES
        return b"".join(parts) if len(parts) != 1 else parts[0]

    def _entries(self, queue: AuditedQueue, slot: int, end: int) -> Iterator[tuple[int, tuple[int, int, int]]]:
        while slot < end:
            data = self._read(queue, slot, min(_READ_ENTRIES, end - slot))
            if not data:
                return
            for at, entry in enumerate(ENTRY.iter_unpack(data[: len(data) - len(data) % ENTRY_BYTES])):
                yield slot + at, entry
            slot += max(1, len(data) // ENTRY_BYTES)

    def _data_end(self, queue: AuditedQueue) -> int:
        """Return the slot behind the last byte that is not in a hole."""
        path = segment_path(queue.directory, queue.bases[-1])
        position = end = 0
        while position < queue.file_bytes:
            data_at = self._reader.next_data(path, position)
            if data_at is None:
                break
            data = self._reader.read(path, _DATA_BYTES, data_at)
            end = data_at + len(kept) if (kept := data.rstrip(b"\0")) else end
            position = data_at + max(1, len(data))
        return (queue.bases[-1] + end + ENTRY_BYTES - 1) // ENTRY_BYTES


def _expected(block: Block, codes: Longs) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    entries = np.empty(len(block), _ENTRY_TYPE)
    entries["log_offset"], entries["size"], entries["code"] = block.heads["log_offset"], block.heads["size"], codes
    return entries


def _difference(found: tuple[int, int, int], expected: tuple[int, int, int]) -> str:
    pairs = zip(("log offset", "size", "tag code or delivery time"), found, expected, strict=True)
    parts = [f"{name} {one} instead of {other}" for name, one, other in pairs if one != other]
    return f"the entry has {', '.join(parts)}"


class AuditedBatchQueue:
    """The units of one queue, in order: ``peek`` at the next one, then ``step`` over it."""

    def __init__(self, reader: ReadFiles, directory: str, files: list[SegmentFile]) -> None:
        self.directory = directory
        self._reader = reader
        self._files = files
        self._number = self._position = 0

    def peek(self) -> bytes:
        """Return the next unit that is not zeros, nothing at the end."""
        while self._number < len(self._files):
            file = self._files[self._number]
            data = self._reader.read(file.path, BATCH_UNIT_BYTES, self._position)
            if len(data) == BATCH_UNIT_BYTES and data.strip(b"\0"):
                return data
            following = self._reader.next_data(file.path, self._position) if data else None
            if data and following is not None:
                skipped = max(self._position + BATCH_UNIT_BYTES, following - following % BATCH_UNIT_BYTES)
                self._position = skipped
            else:
                self._number, self._position = self._number + 1, 0
        return b""

    def step(self) -> None:
        """Go on behind the unit."""
        self._position += BATCH_UNIT_BYTES

    @property
    def place(self) -> tuple[str, int]:
        """Path and position of the next unit."""
        if self._number < len(self._files):
            return self._files[self._number].path, self._position
        last = self._files[-1] if self._files else SegmentFile(f"{self.directory}/0", 0, 0)
        return last.path, last.size


class BatchAudit:
    """Compares the records of topics with batch queues; then ``finish``."""

    def __init__(self, log: LogAudit) -> None:
        self._log, self._report = log, log.report
        self._queues: dict[tuple[str, int], AuditedBatchQueue] = {}
        self.topics: set[str] = set()

    def add(self, topic: str, queue_id: int, queue: AuditedBatchQueue) -> None:
        """Take a queue."""
        self._queues[topic, queue_id] = queue
        self.topics.add(topic)

    def compare(self, block: Block, keys: BlockKeys, topics: tuple[Longs, list[str]]) -> None:
        """Compare the records of a block that have units."""
        numbers, names = topics
        wanted = [number for number, name in enumerate(names) if name in self.topics]
        if not wanted:
            return
        codes, flags = keys.tags_codes(), block.number("sys_flag")
        for row, number in enumerate(numbers.tolist()):
            if number in wanted and not flags[row] & TRANSACTION_PREPARED:
                self._compare_one(block, row, int(codes[row]))

    def finish(self) -> None:
        """Report the units that no record belongs to."""
        for (topic, queue_id), queue in self._queues.items():
            while unit := queue.peek():
                self._orphan(queue, UNIT.unpack(unit), Hit(topic, queue_id))
                queue.step()
            if queue.directory in self._report.directories:
                self._report.wrong_queues[queue.directory] = None

    def _compare_one(self, block: Block, row: int, code: int) -> None:
        record = decode_record(block.segment.view, int(block.positions[row]))
        properties = parse_properties(record.property_text)
        hit = Hit(record.topic, record.queue_id, record.queue_offset, properties.get("UNIQ_KEY"))
        queue = self._queues.get((record.topic, record.queue_id))
        entry = (record.log_offset, record.total_size, code)
        count = count_of(record.sys_flag, properties)
        expected = encode_unit(entry, record.stored_at_ms, record.queue_offset, count)
        while queue is not None and (unit := queue.peek()):
            if unit[:38] == expected[:38]:
                queue.step()
                self._report.counts["batch units"] += 1
                return
            values = UNIT.unpack(unit)
            if values[0] > record.log_offset or values[4] > record.queue_offset:
                break
            if values[0] == record.log_offset or values[4] == record.queue_offset:
                self._report.add(
                    Finding(
                        _BATCH_KIND, *_told(queue, "the unit is not that of its record"), record.log_offset, [hit], 1
                    )
                )
                queue.step()
                return
            self._orphan(queue, values, Hit(record.topic, record.queue_id, values[4]))
            queue.step()
        path = queue.place[0] if queue is not None else f"{record.topic}/{record.queue_id}"
        self._report.add_or_note(Finding(_BATCH_KIND, path, "a record has no unit", None, record.log_offset, [hit], 1))

    def _orphan(self, queue: AuditedBatchQueue, unit: _UnitValues, hit: Hit) -> None:
        log_offset = unit[0]
        if 0 <= log_offset < self._log.start:
            self._report.counts["expired units"] += 1
            return
        damage = self._log.finding_at(log_offset)
        if damage is not None:
            damage.add_hit(hit)
            return
        finding = Finding(_BATCH_KIND, *_told(queue, "no record belongs to the unit"), log_offset, [hit], 1)
        if log_offset >= self._log.end:
            self._report.add_or_note(finding)
        else:
            self._report.add(finding)


def _told(queue: AuditedBatchQueue, reason: str) -> tuple[str, str, int]:
    path, position = queue.place
    return path, reason, position
