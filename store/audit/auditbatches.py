"""The audit of the batch consume queues: every unit against its record (store.md §3.8).

A unit has no place that follows from a record, so units and records are met in order: a unit before the next record's
has lost its record, a record before the next unit's has no unit.
"""

from typing import Final

from ...common.properties import parse_properties
from ...common.record import decode_record
from ...common.sysflag import TRANSACTION_PREPARED
from ..commitlog.record_blocks import Block, Longs
from ..consumequeue.batch_queue import UNIT, count_of, encode_unit
from ..files.segments import SegmentFile
from ..files.store_config import BATCH_UNIT_BYTES
from .audit_report import AuditReport, Finding, Hit
from .auditfiles import ReadFiles
from .block_keys import BlockKeys
from .log_audit import LogAudit

_KIND: Final = "batch queue"
_UnitValues = tuple[int, int, int, int, int, int, int, int]


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

    def __init__(self, report: AuditReport, log: LogAudit, log_start: int) -> None:
        self._report = report
        self._log = log
        self._log_start = log_start
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
                    Finding(_KIND, *_told(queue, "the unit is not that of its record"), record.log_offset, [hit], 1)
                )
                queue.step()
                return
            self._orphan(queue, values, Hit(record.topic, record.queue_id, values[4]))
            queue.step()
        path = queue.place[0] if queue is not None else f"{record.topic}/{record.queue_id}"
        self._report.add_or_note(Finding(_KIND, path, "a record has no unit", None, record.log_offset, [hit], 1))

    def _orphan(self, queue: AuditedBatchQueue, unit: _UnitValues, hit: Hit) -> None:
        log_offset = unit[0]
        if 0 <= log_offset < self._log_start:
            self._report.counts["expired units"] += 1
            return
        damage = self._log.finding_at(log_offset)
        if damage is not None:
            damage.add_hit(hit)
            return
        finding = Finding(_KIND, *_told(queue, "no record belongs to the unit"), log_offset, [hit], 1)
        if log_offset >= self._log.end:
            self._report.add_or_note(finding)
        else:
            self._report.add(finding)


def _told(queue: AuditedBatchQueue, reason: str) -> tuple[str, str, int]:
    path, position = queue.place
    return path, reason, position
