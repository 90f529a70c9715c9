"""The dispatcher: from records in the log to queue entries, index keys and arrival notices.

Rules (``ReputMessageService``, ``CommitLogDispatcher``; store.md §3.2, §3.3, §5):

- It is the only writer of queues and index. It goes no further than the confirm offset that it is given.
- Entries are collected per queue and written with one call per queue. Index keys are handed on and built later.
- Notices come last, when all records of the call are readable.
- When a queue cannot be written, the records stay here, in order, and the next call takes them up again; what is
  already in its queue is not written twice.
- Which entry a record gets say the ``EntryRules``, the same for what is sent, recovered and copied from a master.
"""

from collections.abc import Callable, Sequence

from ...common.errors import StoreFullError, StoreNotWritableError
from ..commitlog.commit_log import CommitLog
from ..consumequeue.appended import Appended, describe, leave_topic
from ..consumequeue.batch_queue import BatchQueue, count_of
from ..consumequeue.consume_queue import ConsumeQueue
from ..consumequeue.queue_table import EntryRules
from ..files.files import NO_ROOM
from ..index.key_index import KeyIndex

Arrivals = Callable[[Sequence[Appended]], object]
"""Told which records have become readable, in log order; those without a queue are among them."""


class Dispatcher:
    """Makes records readable by queue and key, in log order."""

    def __init__(self, rules: EntryRules, index: KeyIndex | None, dispatched_offset: int = 0) -> None:
        self._rules = rules
        self._index = index
        self._waiting: list[Appended] = []
        self._subscribers: tuple[Arrivals, ...] = ()
        self.dispatched_offset = dispatched_offset
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

    def take_from(self, log: CommitLog) -> int:
        """Take the whole records that a copy has brought into the log; return the store time of the last one, or 0.

        What is none yet is looked at again when more has come: a slave never skips bytes (replication.md §5).
        """
        stored_at_ms = 0
        last = self._waiting[-1] if self._waiting else None
        start = self.dispatched_offset if last is None else last.log_offset + last.size
        for data in log.records_from(max(start, log.min_offset)):
            record = describe(data)
            queue = record.queue = self._rules.queue_of(record.topic, record.queue_id, record.sys_flag)
            if queue is not None:
                if not queue.next_offset:
                    queue.begin_at(record.queue_offset)
                queue.next_offset = record.queue_offset + count_of(record.sys_flag, record.properties)
            self._waiting.append(record)
            stored_at_ms = record.stored_at_ms
        return stored_at_ms

    def forget_topic(self, topic: str) -> None:
        """Let the waiting records of a topic have no queue: it is gone."""
        leave_topic(self._waiting, topic)

    def advance(self, confirm_offset: int, records: list[Appended]) -> None:
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
            self._index.pending += ready
        for tell in self._subscribers:
            tell(ready)

    def _write_queues(self, ready: list[Appended]) -> None:
        touched: list[ConsumeQueue | BatchQueue] = []
        entry_of = self._rules.entry_of
        try:
            for record in ready:
                queue = record.queue
                if queue is None or record.queue_offset < queue.max_offset:
                    continue
                pending = queue.pending
                if not pending:
                    if record.queue_offset != queue.max_offset:
                        raise StoreNotWritableError(
                            f"queue {queue.directory} ends at {queue.max_offset}, "
                            f"the next record in the log has {record.queue_offset}"
                        )
                    touched.append(queue)
                pending += entry_of(record)
            for queue in touched:
                queue.write_pending()
        except (OSError, StoreNotWritableError):
            for queue in touched:
                queue.pending.clear()
            raise


def _split(records: list[Appended], log_offset: int) -> tuple[list[Appended], list[Appended]]:
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
