"""What can be read of an open store: by queue offset, log offset, time and key.

Rules:

- Nothing behind the confirm offset is returned: under SYNC_FLUSH that is what is on disk.
- A look-up by key must see all that is readable, so it has index entries built that wait.

It writes nothing and knows neither commits nor flushes.
"""

from collections.abc import Callable, Iterator
from itertools import chain

from .consumequeue.batch_queue import NO_MIN_OFFSET, BatchQueue
from .consumequeue.consume_queue import ENTRY, Entry
from .consumequeue.queue_reader import (
    AcceptsCode,
    AcceptsRecord,
    Boundary,
    ColdRecords,
    QueueReader,
    ReadLimits,
    ReadResult,
    ReadStatus,
    batch_offset_by_time,
    offset_by_time,
)
from .files.store_config import StoreConfig
from .index.key_index import KeyKind, KeyRange, QueryResult, query
from .store_parts import StoreParts


class MessageReader:
    """The reading calls of ``DefaultMessageStore``; ``build_index`` writes the index entries that wait."""

    def __init__(
        self, config: StoreConfig, parts: StoreParts, confirm_offset: Callable[[], int], build_index: Callable[[], None]
    ) -> None:
        self._most_queried = config.max_query_messages
        self._files = parts.files
        self._log = parts.log
        self._queues = parts.queues
        self._index = parts.index
        self._recovered_from = parts.recovered.start
        self._confirm_offset = confirm_offset
        self._build_index = build_index
        self._reader = QueueReader(parts.log, config)

    def __repr__(self) -> str:
        return f"<MessageReader of {self._log}>"

    def cold_records(self) -> ColdRecords:
        """Return a reader of records for another thread."""
        return ColdRecords(self._files, self._log)

    def entry_stored_at(self, entry: Entry) -> int:
        """Return the store time of an entry's record, -1 when it is not in the log."""
        return self._reader.entry_stored_at(entry)

    def file_start_before(self, at_ms: int) -> int:
        """Return the start of the last file of the log whose first record was stored before a time, or of the log."""
        log = self._log
        base = log.max_offset - log.max_offset % log.file_bytes
        while base > log.min_offset and not 0 <= self._reader.entry_stored_at((base, 0, 0)) < at_ms:
            base -= log.file_bytes
        return max(base, log.min_offset)

    def first_stored_at(self) -> int:
        """Return the store time of the first record of the log, -1 when there is none."""
        return self._reader.entry_stored_at((self._log.min_offset, 0, 0))

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
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return ReadResult(ReadStatus.NO_MESSAGE_IN_QUEUE, 0, self.min_offset(topic, queue_id), 0, [])
        if accepts is not None and self._queues.ext is not None:
            accepts = self._queues.ext.accepting(topic, queue_id, accepts)
        if isinstance(queue, BatchQueue):
            return self._reader.read_batches(queue, queue_offset, limits, accepts, accepts_record)
        return self._reader.read(queue, queue_offset, limits, accepts, accepts_record)

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

    def record_at(self, log_offset: int, size: int | None = None) -> memoryview | None:
        """Return the record at a log position, ``None`` when none that may be read begins there."""
        return self._reader.record_at(log_offset, size) if log_offset < self._confirm_offset() else None

    def stored_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the store time of a message, -1 when there is none."""
        queue = self._queues.get(topic, queue_id)
        entry = queue.entry(queue_offset) if queue is not None and queue_offset >= queue.min_offset else None
        return self._reader.entry_stored_at(entry) if entry is not None else -1

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
        return offset_by_time(queue, at_ms, boundary, self._reader.entry_stored_at, self._log.min_offset)

    def query(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int, *, kind: KeyKind = "K"
    ) -> QueryResult:
        """Return messages that may have the key: a unique key, a word of KEYS, with kind T a tag (``queryMessage``)."""
        if self._index is None:
            return QueryResult([], [])
        wanted = KeyRange(min(max_count, self._most_queried), begin_ms, end_ms)
        self._build_index()
        return query(self._index, f"{topic}#T#{key}" if kind == "T" else f"{topic}#{key}", wanted, self.record_at)

    def is_near(self, log_offset: int) -> bool:
        """Tell whether a record is close enough to the log's end to be in memory."""
        return self._reader.is_near(log_offset)

    def is_in_memory(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Tell whether a message exists and lies near the log's end (``checkInMemByConsumeOffset``)."""
        queue = self._queues.get(topic, queue_id)
        entry = queue.entry(queue_offset) if queue is not None and queue_offset >= queue.min_offset else None
        return entry is not None and self._reader.is_near(entry[0])

    def topics_since(self, at_ms: int, is_known: Callable[[str], bool]) -> dict[str, int]:
        """Return unknown topics whose newest message recovery has met and is not from before; and their queues' number.

        Batch topics are left out: ``batch_topics`` has them.
        """
        found: set[str] = set()
        counts: dict[str, int] = {}
        for queue in self._queues:
            if queue.max_offset and not is_known(queue.topic):
                counts[queue.topic] = max(counts.get(queue.topic, 0), queue.queue_id + 1)
                entry = queue.entry(queue.max_offset - 1)
                is_met = entry is not None and entry[0] >= self._recovered_from
                if entry is not None and is_met and self._reader.entry_stored_at(entry) >= at_ms:
                    found.add(queue.topic)
        return {topic: count for topic, count in counts.items() if topic in found}
