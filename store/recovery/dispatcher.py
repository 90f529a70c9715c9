"""The dispatcher: from records in the log to queue entries, index keys and arrival notices.

Rules (``ReputMessageService``, ``CommitLogDispatcher``; store.md §3.2, §3.3, §5):

- It is the only writer of queues and index. It goes no further than the confirm offset that it is given.
- Entries are collected per queue and written with one call per queue. Index keys are handed on and built later.
- Notices come last, when all records of the call are readable. Who needs a record and not its entry may be told before
  the entries are written (``coming``), and need not wait for that.
- When a queue cannot be written, the records stay here, in order, and the next call takes them up again; what is
  already in its queue is not written twice, but told twice as coming.

Rules of entries (``EntryRules``; store.md §3.2, §3.3, §3.8, §10.1), the same for records that were just sent, that
recovery finds in the log, and that are copied from a master. Blocks of records have a second form of them, made with
numpy (``recovery.block_dispatch``); a test holds both equal.

- Prepared and rolled-back records of the old transaction kind get no entry; inner batches get one in batch queues only.
- The code of an entry is the hash of the record's tag. That of a delayed message is the time when it is due: the store
  time plus the delay of its level (``messageDelayLevel``); a level above the highest is the highest.
- An entry keeps the time that it was given, when the levels are others after a restart; Java's broker leaves it alone,
  too. Delays are whole seconds, so the old time and the one that the levels give now are whole seconds apart: that
  tells other levels from damage, a single wrong bit always.
"""

import logging
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Final

from ...common.errors import ConfigError, MessageIllegalError, StoreFullError, StoreNotWritableError
from ...common.message import INNER_BATCH, TRANSACTION_PREPARED
from ...common.names import SCHEDULE_TOPIC
from ...common.properties import DELAY, TAGS, codecs, tags_code, tags_code_in, tags_codes_in
from ..commitlog.commit_log import CommitLog
from ..consumequeue.appended import Appended, AppendedRun, Placed, describe, leave_topic
from ..consumequeue.batch_queue import BatchQueue, count_of, encode_unit
from ..consumequeue.consume_queue import ENTRY, ConsumeQueue
from ..consumequeue.queue_table import QueueTable
from ..files.files import NO_ROOM
from ..index.key_index import KeyIndex

Arrivals = Callable[[Sequence[Placed]], object]
"""Told of records, in log order; those without a queue are among them."""

WITHOUT_ENTRY: Final = INNER_BATCH | TRANSACTION_PREPARED
"""Flags of records that get no entry in a consume queue; the prepared bit is also set in "rolled back"."""
UNKNOWN_LEVEL_MS: Final = 1_000
_CODE: Final = struct.Struct(">12xq")
_log = logging.getLogger(__name__)


class EntryRules:
    """Decides about the entries of one store, whose delay levels are ``delays_ms``."""

    def __init__(self, queues: QueueTable, delays_ms: tuple[int, ...]) -> None:
        self._queues = queues
        self.delays_ms = delays_ms

    def queue_for_new(self, topic: str, queue_id: int, sys_flag: int) -> ConsumeQueue | BatchQueue | None:
        """Return the queue of a record that somebody sends; ``None`` for one without an entry.

        Raises:
            MessageIllegalError: An inner batch for a topic of another kind.
            StoreNotWritableError: The queue is just being removed.
        """
        if sys_flag & INNER_BATCH and topic not in self._queues.batch_topics:
            raise MessageIllegalError(f"topic {topic} does not keep messages in batches")
        if (topic, queue_id) in self._queues.leaving and not sys_flag & TRANSACTION_PREPARED:
            raise StoreNotWritableError(f"queue {topic}-{queue_id} is being removed, try again")
        return self.queue_of(topic, queue_id, sys_flag)

    def queue_of(self, topic: str, queue_id: int, sys_flag: int) -> ConsumeQueue | BatchQueue | None:
        """Return the queue of a record of the log, made if need be; ``None`` for one without an entry."""
        if sys_flag & TRANSACTION_PREPARED:
            return None
        if topic in self._queues.batch_topics:
            return self._queues.batches.obtain(topic, queue_id)
        return None if sys_flag & INNER_BATCH else self._queues.obtain(topic, queue_id)

    def queue_for_copy(self, topic: str, queue_id: int, sys_flag: int) -> ConsumeQueue | BatchQueue | None:
        """Return the same for a record that a master has taken, which knows its topic."""
        if not sys_flag & WITHOUT_ENTRY and (queue := self._queues.by_key.get((topic, queue_id))) is not None:
            return queue
        if sys_flag & INNER_BATCH and not sys_flag & TRANSACTION_PREPARED and topic not in self._queues.batch_topics:
            with suppress(ConfigError):  # its queues were made of other records before, and stay
                self._queues.set_batch_topics([topic])
        return self.queue_of(topic, queue_id, sys_flag)

    def clear(self, queue: ConsumeQueue | BatchQueue) -> None:
        """Remove the entries of a queue, which begins anew (raises ``OSError``)."""
        self._queues.clear(queue)

    def entries_of(self, run: Sequence[Placed]) -> bytes:
        """Return what stands in one queue of records that follow each other there, and note the codes in them."""
        first = run[0]
        if first.topic == SCHEDULE_TOPIC or type(first.queue) is BatchQueue:
            return b"".join([self._entry_of(record) for placed in run for record in placed.records()])
        if codecs is not None and (entries := codecs.entries_of(run, Appended)) is not None:
            return entries
        values: list[int] = []
        for record in run:
            if type(record) is AppendedRun:
                values += _run_values(record)
                continue
            parsed = record.parsed
            if parsed is None:
                code = tags_code_in(record.property_text)
            else:
                code = tags_code(tags) if (tags := parsed.get(TAGS)) else 0
            record.tags_code = code
            values += (record.log_offset, record.size, code)
        return ENTRY.pack(*values) if len(values) == 3 else _entries(len(values) // 3).pack(*values)

    def _entry_of(self, record: Appended) -> bytes:
        code = entry_code(record.topic, record.properties, record.stored_at_ms, self.delays_ms)
        record.tags_code = code
        if not isinstance(record.queue, BatchQueue):
            return ENTRY.pack(record.log_offset, record.size, code)
        entry, count = (record.log_offset, record.size, code), count_of(record.sys_flag, record.properties)
        return encode_unit(entry, record.stored_at_ms, record.queue_offset, count)


def _run_values(run: AppendedRun) -> list[int]:
    """Return what stands in the entries of the records, and note the codes in them."""
    run.tags_codes = tags_codes_in(run.property_texts)
    values = [0] * (3 * len(run.sizes))
    values[::3], values[1::3], values[2::3] = run.log_offsets, run.sizes, run.tags_codes
    return values


@lru_cache(maxsize=256)
def _entries(count: int) -> struct.Struct:
    return struct.Struct(f">{ENTRY.format[1:] * count}")


def entry_code(topic: str, properties: Mapping[str, str], stored_at_ms: int, delays_ms: Sequence[int]) -> int:
    """Return the code of a record's entry: the tag's hash, or when to deliver a delayed message."""
    if topic == SCHEDULE_TOPIC and (due_at_ms := due_at(properties, stored_at_ms, delays_ms)) is not None:
        return due_at_ms
    return tags_code(properties.get(TAGS))


def due_at(properties: Mapping[str, str], stored_at_ms: int, delays_ms: Sequence[int]) -> int | None:
    """Return when a message of the schedule topic is due, None when it is not delayed."""
    text = properties.get(DELAY, "").removeprefix("+")
    if not text.isdecimal() or not (level := int(text)):
        return None
    return stored_at_ms + (delays_ms[min(level, len(delays_ms)) - 1] if delays_ms else UNKNOWN_LEVEL_MS)


def is_entry_of_other_levels(topic: str, known: bytes, wanted: bytes) -> bool:
    """Tell whether an entry is right but for a time that other levels gave its message."""
    if topic != SCHEDULE_TOPIC or known[:12] != wanted[:12]:
        return False
    (known_code,), (wanted_code,) = _CODE.unpack(known), _CODE.unpack(wanted)
    return known_code > 0 and wanted_code > 0 and (known_code - wanted_code) % 1_000 == 0


class Dispatcher:
    """Makes records readable by queue and key, in log order."""

    def __init__(self, rules: EntryRules, index: KeyIndex | None, dispatched_offset: int) -> None:
        self._rules = rules
        self._index = index
        self._waiting: list[Placed] = []
        self._subscribers: tuple[Arrivals, ...] = ()
        self._coming: Arrivals | None = None
        self.dispatched_offset = dispatched_offset
        self.last_stored_at_ms = 0
        self.last_copied_offset = -1
        """Where the last record begins that was taken from the log."""

    def __repr__(self) -> str:
        return f"<Dispatcher at {self.dispatched_offset}, {len(self._waiting)} waiting>"

    @property
    def is_behind(self) -> bool:
        """Whether records wait for their queue entries."""
        return bool(self._waiting)

    @property
    def waiting_bytes(self) -> int:
        """How much of the log waits for its queue entries."""
        return sum(record.size for record in self._waiting)

    def subscribe(self, arrivals: Arrivals, coming: Arrivals | None = None) -> Callable[[], None]:
        """Tell of records that become readable from now on; return the call that ends it.

        ``coming`` is told of them before their entries are written; there is one at most, and it raises nothing.
        """
        self._subscribers += (arrivals,)
        self._coming = coming or self._coming
        return lambda: self._unsubscribe(arrivals, coming)

    def _unsubscribe(self, arrivals: Arrivals, coming: Arrivals | None) -> None:
        self._subscribers = tuple(one for one in self._subscribers if one is not arrivals)
        self._coming = None if coming else self._coming

    def add(self, records: list[Placed]) -> None:
        """Take records that are in the log, in its order."""
        self._waiting += records

    @property
    def taken_offset(self) -> int:
        """The end of the last record that was taken."""
        last = self._waiting[-1] if self._waiting else None
        return self.dispatched_offset if last is None else last.log_offset + last.size

    def take_from(self, log: CommitLog) -> int:
        """Take the whole records that a copy has brought into the log; return the store time of the last one, or 0.

        What is none yet is looked at again when more has come: a slave never skips bytes (replication.md §5). A topic
        with an inner batch keeps batches whole, though its settings may come later (raises ``OSError``).
        """
        stored_at_ms = 0
        for data in log.records_from(max(self.taken_offset, log.min_offset)):
            record = describe(data)
            self.last_copied_offset = record.log_offset
            queue = record.queue = self._rules.queue_for_copy(record.topic, record.queue_id, record.sys_flag)
            if queue is not None:
                if record.queue_offset < queue.next_offset:
                    self._begin_anew(queue, record)
                if not queue.next_offset:
                    queue.begin_at(record.queue_offset)
                is_batch = record.sys_flag & INNER_BATCH
                count = count_of(record.sys_flag, record.properties) if is_batch else 1
                queue.next_offset = record.queue_offset + count
            self._waiting.append(record)
            stored_at_ms = record.stored_at_ms
        return stored_at_ms

    def _begin_anew(self, queue: ConsumeQueue | BatchQueue, record: Appended) -> None:
        """Do what a master has done that has deleted a topic and made it again: its queues count from 0."""
        text = "queue %s begins anew at %d, it ended at %d: the master has deleted its topic meanwhile"
        _log.warning(text, queue.directory, record.queue_offset, queue.next_offset)
        for waiting in self._waiting:
            if waiting.queue is queue:
                waiting.queue = None
        self._rules.clear(queue)

    def forget_topic(self, topic: str) -> None:
        """Let the waiting records of a topic have no queue: it is gone."""
        leave_topic(self._waiting, topic)

    def advance(self, confirm_offset: int, records: list[Placed]) -> None:
        """Take records that are in the log, and make what waits up to the offset readable.

        Raises:
            StoreFullError: No room for queue entries; the records wait for the next call.
            StoreNotWritableError: The disk failed.
        """
        ready = self._waiting + records if self._waiting else records
        self._waiting = []
        if ready and ready[-1].log_offset + ready[-1].size > confirm_offset:
            ready, self._waiting = _split(ready, confirm_offset)
        if not ready:
            return
        try:
            self._write_queues(ready)
        except StoreNotWritableError:
            self._waiting = ready + self._waiting
            raise
        except OSError as error:
            self._waiting = ready + self._waiting
            raise translate_write_error(error) from error
        last = ready[-1]
        self.dispatched_offset = last.log_offset + last.size
        self.last_stored_at_ms = last.stored_at_ms
        if self._index is not None:
            self._index.add(ready)
        for tell in self._subscribers:
            tell(ready)

    def _write_queues(self, ready: list[Placed]) -> None:
        runs: dict[ConsumeQueue | BatchQueue, list[Placed]] = {}
        for record in ready:
            queue = record.queue
            if queue is None:
                continue
            if record.queue_offset < queue.max_offset:  # written before something failed, a run maybe in part
                left = [one for one in record.records() if one.queue_offset >= queue.max_offset]
                if left:
                    runs[queue] = [*left]
                continue
            run = runs.get(queue)
            if run is None:
                if record.queue_offset != queue.max_offset:
                    raise StoreNotWritableError(
                        f"queue {queue.directory} ends at {queue.max_offset}, "
                        f"the next record in the log has {record.queue_offset}"
                    )
                runs[queue] = [record]
            else:
                run.append(record)
        try:
            for queue, run in runs.items():
                pending = queue.pending
                pending += self._rules.entries_of(run)
            if self._coming is not None:
                self._coming(ready)
            for queue in runs:
                queue.write_pending()
        except (OSError, StoreNotWritableError):
            for queue in runs:
                queue.pending.clear()
            raise


def _split(records: list[Placed], log_offset: int) -> tuple[list[Placed], list[Placed]]:
    """Return the records that end at or before a position of the log, and the others."""
    count = len(records)
    while count and records[count - 1].log_offset + records[count - 1].size > log_offset:
        count -= 1
    return records[:count], records[count:]


def translate_write_error(error: OSError) -> StoreNotWritableError:
    """Return what a failed write means to the sender of a message."""
    if error.errno in NO_ROOM:
        return StoreFullError(f"no room in the store: {error}")
    return StoreNotWritableError(f"cannot write to the store: {error}")
