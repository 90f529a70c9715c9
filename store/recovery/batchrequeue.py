"""Compares the batch queues with a walk over the log, and writes what is missing or wrong (store.md §3.8, §7).

Rules:

- Units of records before the walk's start are trusted; those from the start on must be what the walk yields. The first
  difference cuts the queue there, and the rest is written from the log.
- A record stands at the queue offset that it names, however large the gap before it is: units say their offsets. One
  that names an offset below the end of what came before begins a new numbering, and the old units go.
- A queue that lacks units of records before the start is reported in ``broken`` and written anew by a walk over the
  whole log.
"""

from collections.abc import Iterable

from ..consumequeue.appended import Appended
from ..consumequeue.batch_queue import UNIT, BatchQueue
from ..consumequeue.batchqueues import BatchQueues
from ..consumequeue.entry_rules import EntryRules
from ..files.store_config import BATCH_UNIT_BYTES

_WRITE_BYTES = 65_536


class _Progress:
    """What the walk wants from ``slot`` on: ``wanted`` is compared or written when it has grown."""

    __slots__ = ("next_offset", "slot", "wanted")

    def __init__(self, slot: int, next_offset: int) -> None:
        self.slot = slot
        self.next_offset = next_offset
        self.wanted = bytearray()


class BatchRequeue:
    """One walk's effect on the batch queues; feed it the records of their topics in order, then ``finish``."""

    def __init__(self, queues: BatchQueues, rules: EntryRules, start: int, *, is_whole_log: bool) -> None:
        self._queues = queues
        self._rules = rules
        self._start = start
        self._is_whole_log = is_whole_log
        self._only: set[BatchQueue] | None = None
        self._progress: dict[BatchQueue, _Progress] = {}
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
        unit = self._rules.entry_of(record)
        progress.wanted += unit
        progress.next_offset = record.queue_offset + UNIT.unpack(unit)[5]
        if len(progress.wanted) >= _WRITE_BYTES:
            self._write(queue, progress)

    def finish(self) -> None:
        """Write what is collected and cut units that no record stands behind."""
        for queue in self._queues:
            if queue in self.broken or (self._only is not None and queue not in self._only):
                continue
            progress = self._progress.get(queue) or self._begin(queue)
            self._write(queue, progress)
            if progress.slot < queue.slots.max_offset:
                queue.cut_slots(progress.slot)

    def _begin(self, queue: BatchQueue) -> _Progress:
        slots = queue.slots
        slot = slots.first_at(self._start, max(slots.first_base, 0) // BATCH_UNIT_BYTES, slots.max_offset)
        before = queue.unit(slot - 1)
        progress = self._progress[queue] = _Progress(slot, before.next_offset if before is not None else 0)
        return progress

    def _write(self, queue: BatchQueue, progress: _Progress) -> None:
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


def _same_units(known: bytes, wanted: bytes) -> int:
    most = min(len(known), len(wanted))
    if known[:most] == wanted[:most]:
        return most // BATCH_UNIT_BYTES
    units = ((at, at + BATCH_UNIT_BYTES) for at in range(0, most, BATCH_UNIT_BYTES))
    return next(at for at, end in units if known[at:end] != wanted[at:end]) // BATCH_UNIT_BYTES
