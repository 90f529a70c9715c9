"""The dispatcher: from records in the log to queue entries, index keys and arrival notices.

Rules (``ReputMessageService``, ``CommitLogDispatcher``; store.md §3.2, §3.3, §5):

- It is the only writer of queues and index. It goes no further than the confirm offset that it is given.
- Entries are collected per queue and written with one call per queue. Index keys are handed on and built later.
- Notices come last, when all records of the call are readable.
- When a queue cannot be written, the records stay here, in order, and the next call takes them up again; what is
  already in its queue is not written twice.
- Prepared and rolled-back records of the old transaction kind get no queue entry; inner batches get one in batch
  queues only.
"""

from collections.abc import Callable, Mapping, Sequence

from ...common.errors import StoreFullError, StoreNotWritableError
from ...common.hashing import tags_code
from ...common.names import SCHEDULE_TOPIC
from ...common.properties import TAGS
from ...common.sysflag import INNER_BATCH, TRANSACTION_PREPARED
from ..consumequeue.batchqueue import BatchQueue, count_of, encode_unit
from ..consumequeue.consumequeue import ENTRY, ConsumeQueue
from ..consumequeue.dispatched import Appended, leave_topic
from ..consumequeue.duetimes import due_at
from ..files.files import NO_ROOM
from ..index.index import Index

WITHOUT_ENTRY = INNER_BATCH | TRANSACTION_PREPARED  # the prepared bit is also set in "rolled back"


Arrivals = Callable[[Sequence[Appended]], object]
"""Told which records have become readable, in log order; those without a queue are among them."""


class Dispatcher:
    """Makes records readable by queue and key, in log order."""

    def __init__(self, index: Index | None, delays_ms: tuple[int, ...]) -> None:
        self._index = index
        self._delays_ms = delays_ms
        self._waiting: list[Appended] = []
        self._subscribers: tuple[Arrivals, ...] = ()
        self.dispatched_offset = 0
        self.last_stored_at_ms = 0

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

    def subscribe(self, arrivals: Arrivals) -> Callable[[], None]:
        """Tell of records that become readable from now on; return the call that ends it."""
        self._subscribers += (arrivals,)
        return lambda: self._unsubscribe(arrivals)

    def _unsubscribe(self, arrivals: Arrivals) -> None:
        self._subscribers = tuple(one for one in self._subscribers if one is not arrivals)

    def add(self, records: list[Appended]) -> None:
        """Take records that are in the log, in its order."""
        self._waiting += records

    def forget_topic(self, topic: str) -> None:
        """Let the waiting records of a topic have no queue: it is gone."""
        leave_topic(self._waiting, topic)

    def advance(self, confirm_offset: int) -> None:
        """Make the waiting records that end at or before the offset readable.

        Raises:
            StoreFullError: No room for queue entries; the records wait for the next call.
            StoreNotWritableError: The disk failed.
        """
        if not self._waiting:
            return
        ready = self._take_ready(confirm_offset)
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
            self._index.pending += ready
        for tell in self._subscribers:
            tell(ready)

    def _take_ready(self, confirm_offset: int) -> list[Appended]:
        waiting = self._waiting
        if waiting[-1].log_offset + waiting[-1].size <= confirm_offset:
            self._waiting = []
            return waiting
        count = len(waiting)
        while count and waiting[count - 1].log_offset + waiting[count - 1].size > confirm_offset:
            count -= 1
        ready, self._waiting = waiting[:count], waiting[count:]
        return ready

    def _write_queues(self, ready: list[Appended]) -> None:
        touched: list[ConsumeQueue | BatchQueue] = []
        pack, delays_ms = ENTRY.pack, self._delays_ms
        try:
            for record in ready:
                queue = record.queue
                if queue is None or record.queue_offset < queue.max_offset:
                    continue
                pending = queue.pending
                if not pending:
                    _check_place(record, queue)
                    touched.append(queue)
                if record.topic == SCHEDULE_TOPIC:
                    code = entry_code(record.topic, record.properties, record.stored_at_ms, delays_ms)
                else:
                    tags = record.properties.get(TAGS)
                    code = tags_code(tags) if tags else 0
                record.tags_code = code
                pending += batch_unit(record) if queue.is_batch else pack(record.log_offset, record.size, code)
            for queue in touched:
                queue.write_pending()
        except (OSError, StoreNotWritableError):
            for queue in touched:
                queue.pending.clear()
            raise


def batch_unit(record: Appended) -> bytes:
    """Return the unit of a record in a batch queue; its tags code is known."""
    entry = record.log_offset, record.size, record.tags_code
    return encode_unit(entry, record.stored_at_ms, record.queue_offset, count_of(record.sys_flag, record.properties))


def _check_place(record: Appended, queue: ConsumeQueue | BatchQueue) -> None:
    if record.queue_offset != queue.max_offset:
        raise StoreNotWritableError(
            f"queue {queue.directory} ends at {queue.max_offset}, the next record in the log has {record.queue_offset}"
        )


def gets_entry(sys_flag: int) -> bool:
    """Tell whether such a record gets an entry in a queue that is no batch queue (store.md §3.3, §3.8)."""
    return not sys_flag & WITHOUT_ENTRY


def entry_code(topic: str, properties: Mapping[str, str], stored_at_ms: int, delays_ms: Sequence[int]) -> int:
    """Return the code of a queue entry: the tag's hash, or when to deliver a delayed message (store.md §3.2)."""
    if topic == SCHEDULE_TOPIC and (due_at_ms := due_at(properties, stored_at_ms, delays_ms)) is not None:
        return due_at_ms
    return tags_code(properties.get(TAGS))


def translate_write_error(error: OSError) -> StoreNotWritableError:
    """Return what a failed write means to the sender of a message."""
    if error.errno in NO_ROOM:
        return StoreFullError(f"no room in the store: {error}")
    return StoreNotWritableError(f"cannot write to the store: {error}")
