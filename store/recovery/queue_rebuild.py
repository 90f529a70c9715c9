"""Compares the queues with a walk over the log, and writes what is missing or wrong.

Rules of consume queues (store.md §3.4, §7.3, §7.4, §15.2):

- Entries of records before the walk's start are trusted; those from the start on must be what the walk yields, in
  order. The first difference cuts the queue there, and the rest is written from the log.
- No entry is left that leads behind the end of the log, also where entries before it never arrived.
- A record goes to the slot of its queue offset. When the queue ends below it, it goes to the end, as Java puts it:
  slots shift. When the queue is already further, a new numbering began there: it replaces what it overlaps.
- An entry that is right stays, whatever its record says of its place; behind entries whose records are lost, too.
- A record whose slot holds the entry of a later one is left out at first: it is of an older numbering if the topic was
  deleted and made again. Then the record with the number of the slot follows; if it does not, the queue is reported
  in ``broken``.
- An entry whose code is the address of an extended one is right when it names the record, and so is one of a delayed
  message when other levels gave it its time (``EntryRules``).
- After a clean stop, records of a topic that ``config/topics.json`` does not list and that has no queue left are what a
  deletion left in the log: they get no queue.
- A queue that lacks entries of records before the start cannot be completed by this walk; it is reported in
  ``broken`` and written anew by a walk over the whole log.

This is not the ``Dispatcher``, which puts entries behind the last one of a queue, for records that it gets one by one.
A walk meets entries that are there already, nearly always: it compares whole runs of them as bytes without making a
value of each record, which alone would cost more than twice the whole walk, and has to cut and to shift where they
differ. What both share is what a queue gets and how: the
entries are those of ``EntryRules``, and ``ConsumeQueue.write_pending`` alone writes them.

Rules of batch queues (store.md §3.8, §7):

- Units of records before the walk's start are trusted; those from the start on must be what the walk yields. The first
  difference cuts the queue there, and the rest is written from the log.
- A record stands at the queue offset that it names, however large the gap before it is: units say their offsets. One
  that names an offset below the end of what came before begins a new numbering, and the old units go.
- A queue that lacks units of records before the start is reported in ``broken`` and written anew by a walk over the
  whole log.
"""

import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from ...common.message import HOSTS_V6
from ...common.properties import tags_code
from ...common.record import MAGIC_V1
from ..consumequeue.appended import Appended, describe
from ..consumequeue.batch_queue import UNIT, BatchQueue
from ..consumequeue.consume_queue import ENTRY, ConsumeQueue
from ..consumequeue.queue_table import BatchQueueTable, QueueTable, is_same_entry
from ..files.store_config import BATCH_UNIT_BYTES, ENTRY_BYTES
from .dispatcher import WITHOUT_ENTRY, EntryRules, is_entry_of_other_levels

_SKETCH: Final = struct.Struct(">12xi4xq8xi44xi")  # queue id, queue offset, sys flag, body length
_HEAD_BYTES: Final = 88
_NOT_PLAIN: Final = HOSTS_V6 | WITHOUT_ENTRY
_SEPARATOR: Final = 2
_READ_ENTRIES: Final = 4_096
_WRITE_BYTES: Final = 65_536
Place = tuple[bytes, int]
"""Topic and queue id, as they stand in records."""


class _BatchProgress:
    """What the walk wants from ``slot`` on: ``wanted`` is compared or written when it has grown."""

    __slots__ = ("next_offset", "slot", "wanted")

    def __init__(self, slot: int, next_offset: int) -> None:
        self.slot = slot
        self.next_offset = next_offset
        self.wanted = bytearray()


class BatchQueueRebuild:
    """One walk's effect on the batch queues; feed it the records of their topics in order, then ``finish``."""

    def __init__(self, queues: BatchQueueTable, rules: EntryRules, start: int, *, is_whole_log: bool) -> None:
        self._queues = queues
        self._rules = rules
        self._start = start
        self._is_whole_log = is_whole_log
        self._only: set[BatchQueue] | None = None
        self._progress: dict[BatchQueue, _BatchProgress] = {}
        self.broken: set[BatchQueue] = set()

    def limit_to(self, queues: set[BatchQueue]) -> None:
        """Leave all other queues alone."""
        self._only = queues

    def skip(self, queues: Iterable[BatchQueue]) -> None:
        """Leave these queues to another walk."""
        self.broken.update(queues)

    def place(self, queue: BatchQueue, record: Appended) -> None:
        """Take one record of a batch queue."""
        if queue in self.broken or (self._only is not None and queue not in self._only):
            return
        progress = self._progress.get(queue) or self._begin(queue)
        if record.queue_offset < progress.next_offset:
            progress.wanted.clear()
            queue.remove()
            progress.slot = 0
        elif record.queue_offset > progress.next_offset and not self._is_whole_log:
            self.broken.add(queue)
            return
        unit = self._rules.entries_of((record,))
        progress.wanted += unit
        progress.next_offset = record.queue_offset + UNIT.unpack(unit)[5]
        if len(progress.wanted) >= _WRITE_BYTES:
            self._write(queue, progress)

    def finish(self, log_end: int) -> None:
        """Write what is collected and cut units that no record stands behind."""
        for queue in self._queues:
            if queue in self.broken or (self._only is not None and queue not in self._only):
                continue
            progress = self._progress.get(queue) or self._begin(queue)
            self._write(queue, progress)
            if progress.slot < queue.slots.max_offset:
                _cut(queue.slots, progress.slot, log_end)
                queue.take_over_slots()

    def _begin(self, queue: BatchQueue) -> _BatchProgress:
        slots = queue.slots
        slot = slots.first_at(self._start, 0, slots.max_offset)
        before = queue.unit(slot - 1)
        progress = self._progress[queue] = _BatchProgress(slot, before.next_offset if before is not None else 0)
        return progress

    def _write(self, queue: BatchQueue, progress: _BatchProgress) -> None:
        """Compare the collected units with those in the queue; from the first difference on, write them."""
        wanted, slots = progress.wanted, queue.slots
        while wanted and progress.slot < slots.max_offset:
            known = slots.read(progress.slot, len(wanted) // BATCH_UNIT_BYTES)
            same = _same_units(known, bytes(wanted[: len(known)]))
            progress.slot += same
            del wanted[: same * BATCH_UNIT_BYTES]
            if same * BATCH_UNIT_BYTES < len(known):
                queue.cut_slots(progress.slot)
        progress.slot += len(wanted) // BATCH_UNIT_BYTES
        queue.pending.extend(wanted)
        wanted.clear()
        queue.write_pending()
        queue.take_over_slots()


def _cut(queue: ConsumeQueue, end: int, log_end: int) -> None:
    """Drop the entries from ``end`` on, and what is left of a queue whose log has lost its end.

    Of entries before ``end`` some may never have arrived, and where they are missing, others lead behind the log.
    """
    while end < queue.max_offset:
        queue.cut(end)
        queue.find_end()
        end = queue.first_at(log_end, 0, queue.max_offset)


def _same_units(known: bytes, wanted: bytes) -> int:
    most = min(len(known), len(wanted))
    if known[:most] == wanted[:most]:
        return most // BATCH_UNIT_BYTES
    units = ((at, at + BATCH_UNIT_BYTES) for at in range(0, most, BATCH_UNIT_BYTES))
    return next(at for at, end in units if known[at:end] != wanted[at:end]) // BATCH_UNIT_BYTES


class _Progress:
    """How far the walk has come in one queue; ``known`` are entries read ahead from ``cursor`` on.

    ``is_behind`` while records were left out and the one that belongs to ``cursor`` is still to come.
    """

    __slots__ = ("cursor", "is_behind", "known", "known_at", "queue")

    def __init__(self, queue: ConsumeQueue, cursor: int) -> None:
        self.queue = queue
        self.cursor = cursor
        self.known = b""
        self.known_at = 0
        self.is_behind = False

    def next_known(self) -> bytes:
        """Return the entry that the queue has at the cursor, empty at its end."""
        self._read_ahead()
        return self.known[self.known_at : self.known_at + ENTRY_BYTES]

    def take_known(self, size: int) -> bytes:
        """Return and step over the next entries that the queue has, ``size`` bytes of them at most."""
        self._read_ahead()
        taken = self.known[self.known_at : self.known_at + size]
        self.known_at += len(taken)
        return taken

    def _read_ahead(self) -> None:
        if self.known_at >= len(self.known):
            self.known = self.queue.read(self.cursor, _READ_ENTRIES)
            self.known_at = 0

    def go_to(self, queue_offset: int) -> None:
        """Go on with another entry."""
        self.forget_known()
        self.cursor = queue_offset

    def forget_known(self) -> None:
        """Drop what was read ahead."""
        self.known = b""
        self.known_at = 0


class ConsumeQueueRebuild:
    """One walk's effect on the queues; feed it every record in order, then ``finish``."""

    def __init__(self, queues: QueueTable, rules: EntryRules, start: int, *, is_whole_log: bool) -> None:
        self._queues = queues
        self.rules = rules
        self._start = start
        self._is_whole_log = is_whole_log
        self._only: set[ConsumeQueue] | None = None
        self.batches = BatchQueueRebuild(queues.batches, rules, start, is_whole_log=is_whole_log)
        self._progress: dict[ConsumeQueue, _Progress] = {}
        self._by_place: dict[Place, _Progress] = {}
        self.broken: set[ConsumeQueue] = set()

    def limit_to(self, queues: Iterable[ConsumeQueue]) -> None:
        """Leave all other queues alone."""
        self._only = set(queues)

    def skip(self, queues: Iterable[ConsumeQueue]) -> None:
        """Leave these queues to another walk."""
        self.broken.update(queues)

    def confirm(self, log_offset: int, record: memoryview) -> bool:
        """Take one record if its entry is already there, without decoding it; tell whether it was taken."""
        queue_id, queue_offset, sys_flag, body_length = _SKETCH.unpack_from(record)
        topic_at: int = _HEAD_BYTES + body_length
        if sys_flag & _NOT_PLAIN or record[7] != MAGIC_V1 & 0xFF:
            return False
        topic_end = topic_at + 1 + record[topic_at]
        progress = self._by_place.get((bytes(record[topic_at + 1 : topic_end]), queue_id))
        if progress is None or queue_offset < progress.cursor or progress.queue.pending or progress.is_behind:
            return False
        known = progress.next_known()
        if not known:
            return False
        code = _tags_code(bytes(record[topic_end + 2 :]))
        if code is None or not is_same_entry(known, ENTRY.pack(log_offset, len(record), code)):
            return False
        progress.cursor += 1
        progress.known_at += ENTRY_BYTES
        return True

    def confirm_run(self, place: Place, queue_offset: int, entries: memoryview) -> int:
        """Take the first of consecutive entries of a queue that are there already; return how many were taken."""
        progress = self._by_place.get(place)
        if progress is None:
            return len(entries) // ENTRY_BYTES if self._is_ignored(place) else 0
        if queue_offset != progress.cursor or progress.queue.pending or progress.is_behind:
            return 0
        taken = 0
        while taken < len(entries):
            known = progress.take_known(len(entries) - taken)
            if not known or known != bytes(entries[taken : taken + len(known)]):
                progress.forget_known()
                break
            taken += len(known)
            progress.cursor += len(known) // ENTRY_BYTES
        return taken // ENTRY_BYTES

    def append_run(self, place: Place, queue_offset: int, entries: memoryview) -> bool:
        """Write consecutive entries behind the last one of a queue; tell whether that is where they belong."""
        progress = self._by_place.get(place)
        if progress is None or queue_offset != progress.cursor:
            return False
        queue = progress.queue
        if not queue.pending and progress.next_known():
            return False
        queue.pending += entries
        progress.cursor += len(entries) // ENTRY_BYTES
        if len(queue.pending) >= _WRITE_BYTES:
            self._write(progress)
        return True

    def _is_ignored(self, place: Place) -> bool:
        queue = self._queues.by_key.get((str(place[0], "utf-8", "replace"), place[1]))
        if queue is None:
            return False  # it may be a batch queue
        return queue in self.broken or (self._only is not None and queue not in self._only)

    def feed(self, record: memoryview) -> Appended:
        """Take one record; return it decoded, for the index."""
        appended = describe(record)
        if self._queues.is_deleted(appended.topic):
            return appended
        appended.queue = queue = self.rules.queue_of(appended.topic, appended.queue_id, appended.sys_flag)
        if isinstance(queue, BatchQueue):
            self.batches.place(queue, appended)
        elif queue is not None and queue not in self.broken and (self._only is None or queue in self._only):
            self._place(queue, appended)
        return appended

    def finish(self, log_end: int) -> None:
        """Write what is collected and cut entries that no record stands behind."""
        self.batches.finish(log_end)
        for queue in self._queues:
            if queue in self.broken or (self._only is not None and queue not in self._only):
                continue
            progress = self._progress.get(queue) or self._begin(queue)
            if progress.is_behind:
                self.broken.add(queue)
                continue
            self._write(progress)
            if progress.cursor < queue.max_offset:
                _cut(queue, progress.cursor, log_end)

    def _place(self, queue: ConsumeQueue, record: Appended) -> None:
        progress = self._progress.get(queue)
        if progress is None:
            progress = self._begin(queue)
            self._by_place[queue.topic.encode(), queue.queue_id] = progress
            if self._is_whole_log and record.queue_offset > progress.cursor and not progress.next_known():
                queue.remove()
                queue.set_end(record.queue_offset)
                progress.cursor = record.queue_offset
        known = b"" if queue.pending else progress.next_known()
        if not known and record.queue_offset > progress.cursor and not self._is_whole_log:
            self.broken.add(queue)
            self._by_place.pop((queue.topic.encode(), queue.queue_id))
            return
        entry = self.rules.entries_of((record,))
        is_ahead = record.queue_offset > progress.cursor and not progress.is_behind
        if known and is_ahead and known != entry and queue.read(record.queue_offset, 1) == entry:
            progress.go_to(record.queue_offset)  # the records of the entries between are lost: it keeps its place
            known = entry
        if known and self._is_of(record, known, entry):  # whatever the record says of its place
            progress.is_behind &= record.queue_offset != progress.cursor
            progress.cursor += 1
            progress.known_at += ENTRY_BYTES
            return
        if record.queue_offset < progress.cursor:
            self._restart(progress, record.queue_offset)
            known = b""
        elif known and ENTRY.unpack(known)[0] > record.log_offset:
            progress.is_behind = True
            return
        if record.queue_offset == progress.cursor:
            progress.is_behind = False
        if known:
            queue.cut(progress.cursor)
            progress.forget_known()
        progress.cursor += 1
        queue.pending += entry
        if len(queue.pending) >= _WRITE_BYTES:
            self._write(progress)

    def _is_of(self, record: Appended, known: bytes, entry: bytes) -> bool:
        """Tell whether an entry that a queue has is that of a record."""
        return is_same_entry(known, entry) or is_entry_of_other_levels(record.topic, known, entry)

    def _begin(self, queue: ConsumeQueue) -> _Progress:
        end = queue.max_offset
        last = queue.entry(end - 1) if end else None
        if last is not None and last[0] >= self._start:
            end = queue.first_at(self._start, 0, end)
        progress = self._progress[queue] = _Progress(queue, end)
        return progress

    def _restart(self, progress: _Progress, queue_offset: int) -> None:
        self._write(progress)
        progress.queue.cut(queue_offset)
        progress.go_to(queue_offset)

    def _write(self, progress: _Progress) -> None:
        progress.queue.write_pending()
        progress.queue.set_end(progress.queue.max_offset)


def _tags_code(properties: bytes) -> int | None:
    """Return the code of an entry, ``None`` when it takes the whole record to know it."""
    start = properties.find(b"TAGS\x01")
    if start < 0:
        return None if b"DELAY\x01" in properties else 0
    if b"DELAY\x01" in properties or properties.find(b"TAGS\x01", start + 1) > 0:
        return None
    if start and properties[start - 1] != _SEPARATOR:
        return None
    return _code_of(properties[start + 5 :].partition(b"\x02")[0])


@lru_cache(maxsize=4096)
def _code_of(tags: bytes) -> int:
    return tags_code(str(tags, "utf-8", "replace"))
