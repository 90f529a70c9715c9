"""One store directory, open for writing: the facade that a broker uses.

Rules:

- Synchronous, one writer. ``append`` plans a record and gives it its place, ``commit`` writes everything planned with
  one call and makes it readable. When a commit fails, nothing of it is kept and the places are free again.
- What cannot be written to a queue or the index for want of room is written later; until then no record is taken.
- After a failed flush, or a write that could not be taken back, no record is taken until the store is opened again.
- ``open`` takes the lock first and leaves ``abort`` behind; ``close`` removes it only when everything is written and
  flushed (store.md §6.5, §15.1).
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Self

from ..common.errors import MessageIllegalError, StoreError, StoreFullError, StoreNotWritableError
from ..common.record import BLANK_BYTES, NewRecord
from ..common.sysflag import INNER_BATCH
from .config import StoreConfig
from .consumequeue import ConsumeQueue
from .dispatched import Appended
from .dispatcher import WITHOUT_ENTRY, Arrivals, gets_entry, translate_write_error
from .files import OS_FILES, Files
from .flush import Done
from .flushplan import FlushPlan
from .index import Index
from .opening import Parts, abort_path, open_parts
from .query import KeyKind, KeyRange, QueryResult, query
from .reading import AcceptsCode, AcceptsRecord, Reader, ReadLimits, ReadResult, ReadStatus
from .recordencoder import RecordEncoder
from .timesearch import Boundary, offset_by_time

_log = logging.getLogger(__name__)


class MessageStore:
    """Messages on disk, by queue offset, log offset, time and key (``DefaultMessageStore``)."""

    def __init__(self, config: StoreConfig, parts: Parts, now_ms: Callable[[], int], store_host: bytes) -> None:
        self.config = config
        self._parts = parts
        self._log = parts.log
        self._queues = parts.queues
        self._index = parts.index
        self._dispatcher = parts.dispatcher
        self._flusher = parts.flusher
        self._flusher.flushed_offset = parts.log.max_offset
        self._reader = Reader(parts.log, config)
        self._now_ms = now_ms
        self._encoder = RecordEncoder(config, store_host)
        self._planned: list[Appended] = []
        self._refusal: StoreNotWritableError | None = None
        self._last_refusal = ""
        self._last_at_ms = self._committed_at_ms = parts.recovered.last_stored_at_ms
        self._plan_flush = FlushPlan(parts, config.flush_queue_interval_ms, now_ms())
        self._is_closed = False

    @classmethod
    def open(
        cls, config: StoreConfig, *, now_ms: Callable[[], int], store_host: bytes, files: Files = OS_FILES
    ) -> "MessageStore":
        """Lock, load and recover a directory, which is made if need be.

        Raises:
            ConfigError: The directory cannot be used, or was written with other sizes.
            StoreInUseError: Somebody else has it open.
            StoreDamagedError: Damage before valid data.
        """
        return cls(config, open_parts(config, now_ms, files), now_ms, store_host)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<MessageStore {self.config.root} {self.log_min_offset}..{self.log_max_offset}>"

    # --- writing

    def set_store_host(self, store_host: bytes) -> None:
        """Change the host that records name from now on: a broker on a free port learns its port after the start."""
        self._encoder.store_host = store_host

    @property
    def on_arrivals(self) -> Arrivals | None:
        """Called with the records that have become readable, once for each commit."""
        return self._dispatcher.on_arrivals

    @on_arrivals.setter
    def on_arrivals(self, callback: Arrivals | None) -> None:
        self._dispatcher.on_arrivals = callback

    @property
    def refusal(self) -> StoreNotWritableError | None:
        """Why no record is taken at present, ``None`` when the store is writable."""
        return self._flusher.failure or self._refusal

    def append(self, new: NewRecord) -> Appended:
        """Plan a record and give it its place; it is there after ``commit``.

        Raises:
            MessageIllegalError: A record that no store can hold.
            StoreNotWritableError: The store takes no records at present (``StoreFullError``: for want of room).
        """
        if self._refusal is not None or self._flusher.failure is not None:
            self._check_writable()
        log = self._log
        stored_at_ms = self._last_at_ms if self._planned else self._next_stored_at()
        queue = self._queue_for(new)
        queue_offset = 0 if queue is None else queue.next_offset
        data = self._encoder.encode(new, queue_offset, log.append_offset, stored_at_ms)
        if len(data) + BLANK_BYTES > log.room:
            log.roll()
            data = self._encoder.encode(new, queue_offset, log.append_offset, stored_at_ms)
        return self._plan(new, data, queue, stored_at_ms)

    def append_batch(self, head: NewRecord, parts: Sequence[NewRecord]) -> list[Appended]:
        """Plan the records of a batch: one file, one store time, consecutive offsets in the queue of ``head``.

        Raises:
            MessageIllegalError: A record, or all of them together, that no store can hold.
            StoreNotWritableError: The store takes no records at present.
        """
        self._check_writable()
        stored_at_ms = self._next_stored_at()
        queue = self._queue_for(head)
        queue_offset = 0 if queue is None else queue.next_offset
        encoded = self._encoder.encode_run(parts, queue_offset, self._log.append_offset, stored_at_ms)
        size = sum(map(len, encoded)) + BLANK_BYTES
        if size > self._log.file_bytes:
            raise MessageIllegalError(
                f"batch is {size - BLANK_BYTES} bytes, limit is {self._log.file_bytes - BLANK_BYTES}"
            )
        if size > self._log.room:
            self._log.roll()
            encoded = self._encoder.encode_run(parts, queue_offset, self._log.append_offset, stored_at_ms)
        return self._plan_run(parts, encoded, queue, stored_at_ms)

    def commit(self) -> None:
        """Write all planned records and make them readable.

        Raises:
            StoreFullError: No room; nothing was kept, the places are free again.
            StoreNotWritableError: The disk failed; the same, and the store stays unwritable.
        """
        planned = self._planned
        if not planned:
            return
        self._planned = []
        try:
            self._log.commit()
        except StoreNotWritableError as error:
            for record in reversed(planned):
                if record.queue is not None:
                    record.queue.next_offset = record.queue_offset
            if not isinstance(error, StoreFullError):
                self._refuse(error)
            raise
        self._committed_at_ms = planned[-1].stored_at_ms
        self._dispatcher.add(planned)
        self.advance()

    def advance(self) -> None:
        """Make committed records readable as far as they are confirmed; what fails for want of room waits."""
        try:
            self._dispatcher.advance(self.confirm_offset)
            if self._index is not None and self._index.is_due:
                self._index.build()
        except StoreNotWritableError as error:
            self._refuse(error)
        except OSError as error:
            self._refuse(translate_write_error(error))

    def tick(self) -> None:
        """Catch up with what waits: queue entries that had no room, and index entries; to be called now and then."""
        refused, self._refusal = self._refusal, None
        if refused is not None and not isinstance(refused, StoreFullError):
            self._refusal = refused
            return
        self.advance()
        if self._index is not None and self._index.may_build:
            self._build_index(self._index)
        if refused is not None and self._refusal is None:
            _log.warning("store %s takes records again", self.config.root)

    @property
    def needs_index_tools(self) -> bool:
        """Whether index entries wait for ``prepare_index``."""
        return self._index is not None and self._index.is_behind and not self._index.may_build

    def prepare_index(self) -> None:
        """Load what building the index needs (numpy); takes long, may run in any thread."""
        if self._index is not None:
            self._index.prepare()

    @property
    def confirm_offset(self) -> int:
        """How far the log may be read: everything written, since ASYNC_FLUSH does not wait for the disk."""
        return self._log.max_offset

    # --- flushing and the end

    @property
    def log_min_offset(self) -> int:
        """The first position of the log."""
        return self._log.min_offset

    @property
    def log_max_offset(self) -> int:
        """The end of the committed log."""
        return self._log.max_offset

    @property
    def flushed_offset(self) -> int:
        """The end of what is on disk for certain."""
        return self._flusher.flushed_offset

    def request_flush(self, done: Done) -> None:
        """Bring everything committed to the disk on the flusher's thread, where ``done`` is called then."""
        self._flusher.request(self._plan_flush.take(self._committed_at_ms, self._now_ms()), done)

    def close(self) -> None:
        """Stop cleanly; ``abort`` stays when something could not be written or flushed."""
        if self._is_closed:
            return
        self._is_closed = True
        self._flusher.close()
        try:
            self._finish()
        except (StoreError, OSError) as error:
            _log.error("store %s is not closed cleanly, the next start recovers it: %s", self.config.root, error)
        finally:
            self._parts.close()
            self._refusal = StoreNotWritableError(f"store {self.config.root} is closed")

    def _finish(self) -> None:
        if isinstance(self._refusal, StoreFullError):
            self._refusal = None
        self.commit()
        self.advance()
        if self.refusal is not None:
            raise self.refusal
        if self._index is not None:
            self._index.save()
        self._flusher.flush_now(self._plan_flush.take_all(self._committed_at_ms))
        self._log.remove_spare()
        self._parts.files.unlink(abort_path(self.config))
        self._parts.files.sync_directory(self.config.root)

    # --- reading

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
            return ReadResult(ReadStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0, [])
        return self._reader.read(queue, queue_offset, limits, accepts, accepts_record)

    def queues(self) -> Iterator[tuple[str, int]]:
        """Yield topic and id of every queue that has or had messages."""
        return ((queue.topic, queue.queue_id) for queue in self._queues if queue.max_offset)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first offset whose message is still there."""
        queue = self._queues.get(topic, queue_id)
        return queue.min_offset if queue is not None else 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset that the next readable message will have."""
        queue = self._queues.get(topic, queue_id)
        return queue.max_offset if queue is not None else 0

    def record_at(self, log_offset: int, size: int | None = None) -> memoryview | None:
        """Return the record at a log position, ``None`` when none begins there."""
        return self._reader.record_at(log_offset, size)

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
        return offset_by_time(queue, at_ms, boundary, self._reader.entry_stored_at, self._log.min_offset)

    def query(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int, *, kind: KeyKind = "K"
    ) -> QueryResult:
        """Return messages that may have the key: a unique key, a word of KEYS, with kind T a tag (``queryMessage``)."""
        if self._index is None:
            return QueryResult([], [])
        wanted = KeyRange(min(max_count, self.config.max_query_messages), begin_ms, end_ms)
        self._build_index(self._index)
        return query(self._index, f"{topic}#T#{key}" if kind == "T" else f"{topic}#{key}", wanted, self.record_at)

    def is_in_memory(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Tell whether a message exists and lies near the log's end (``checkInMemByConsumeOffset``)."""
        queue = self._queues.get(topic, queue_id)
        entry = queue.entry(queue_offset) if queue is not None and queue_offset >= queue.min_offset else None
        return entry is not None and self._reader.is_near(entry[0])

    def delete_topic(self, topic: str) -> None:
        """Remove the queues of a topic; its records stay in the log until their files go (raises ``OSError``)."""
        self._queues.remove_topic(topic)

    # --- inside

    def _check_writable(self) -> None:
        if isinstance(self._refusal, StoreFullError):
            self.tick()
        refusal = self.refusal
        if refusal is not None:
            raise type(refusal)(*refusal.args)

    def _refuse(self, error: StoreNotWritableError) -> None:
        if str(error) != self._last_refusal:
            _log.error("store %s takes no records: %s", self.config.root, error)
        self._refusal, self._last_refusal = error, str(error)

    def _build_index(self, index: Index) -> None:
        try:
            index.build()
        except OSError as error:
            self._refuse(translate_write_error(error))

    def _next_stored_at(self) -> int:
        self._last_at_ms = max(self._now_ms(), self._last_at_ms)
        return self._last_at_ms

    def _queue_for(self, new: NewRecord) -> ConsumeQueue | None:
        queue = self._queues.by_key.get((new.topic, new.queue_id))
        if queue is not None and not new.sys_flag & WITHOUT_ENTRY:
            return queue
        if new.sys_flag & INNER_BATCH or new.topic in self._queues.batch_topics:
            raise MessageIllegalError(f"topic {new.topic} keeps messages in batches, which cannot be written")
        return self._queues.obtain(new.topic, new.queue_id) if gets_entry(new.sys_flag) else None

    def _plan(self, new: NewRecord, data: bytes, queue: ConsumeQueue | None, stored_at_ms: int) -> Appended:
        return self._plan_run((new,), (data,), queue, stored_at_ms)[0]

    def _plan_run(
        self, parts: Sequence[NewRecord], encoded: Sequence[bytes], queue: ConsumeQueue | None, stored_at_ms: int
    ) -> list[Appended]:
        queue_offset = 0 if queue is None else queue.next_offset
        step = 0 if queue is None else 1
        log_offset = self._log.append_offset
        placed: list[Appended] = []
        for new, data in zip(parts, encoded, strict=True):
            size = len(data)
            placed.append(
                Appended(
                    log_offset,
                    queue_offset,
                    size,
                    new.topic,
                    new.queue_id,
                    new.sys_flag,
                    stored_at_ms,
                    new.properties,
                    queue,
                )
            )
            log_offset += size
            queue_offset += step
        if queue is not None:
            queue.next_offset = queue_offset
        self._log.add(encoded, log_offset - self._log.append_offset)
        self._planned += placed
        return placed
