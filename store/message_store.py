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
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, Self

from ..common.errors import (
    DiskFullError,
    MessageIllegalError,
    StoreError,
    StoreFullError,
    StoreNotWritableError,
)
from ..common.message import INNER_BATCH
from ..common.record import BLANK_BYTES, NewRecord, PlainPart
from .cleaner import Cleaner
from .commitlog.cold_records import ColdRecords
from .commitlog.commit_log import OTHER_SIZES, CopyFault, RecordEncoder, StoreTime
from .consumequeue.appended import Appended, AppendedRun, Placed, leave_topic, place_run
from .consumequeue.batch_queue import number_inner_batch
from .consumequeue.queue_reader import QueueReader
from .files.file_sync import Done
from .files.files import OS_FILES, Files
from .files.store_config import StoreConfig
from .flush_plan import FlushPlan
from .index.index_file import SlotsUnreadableError
from .index.key_index import INDEX_BATCH_RECORDS, KeyKind, KeyRange, QueryResult, query
from .recovery.dispatcher import WITHOUT_ENTRY, Arrivals, translate_write_error
from .recovery.flusher import LogWork
from .store_parts import StoreParts, abort_path, open_parts
from .timer.timers import Timers

_log = logging.getLogger(__name__)


class Times(NamedTuple):
    """The two clocks of a store."""

    now_ms: Callable[[], int]
    monotonic_ms: Callable[[], int]


class MessageStore:
    """Messages on disk, by queue offset, log offset, time and key (``DefaultMessageStore``).

    ``has_timers`` says whether there were timer files when it was opened.
    """

    def __init__(self, config: StoreConfig, parts: StoreParts, times: Times, store_host: bytes) -> None:
        self.config = config
        self.has_timers = parts.has_timers
        self._parts = parts
        self._log, self._queues, self._index = parts.log, parts.queues, parts.index
        self._rules, self._dispatcher, self._flusher = parts.rules, parts.dispatcher, parts.flusher
        self._encoder = RecordEncoder(config, store_host)
        self._planned: list[Placed] = []
        self._refusal: StoreNotWritableError | None = None
        self._copies_only: StoreNotWritableError | None = None
        self._last_refusal = ""
        self._fault_at = -1
        self._disk_full: DiskFullError | None = None
        self._is_sync_flush = config.is_sync_flush
        self._is_closed = self._is_end_doubted = False
        self._times, self._monotonic_ms = times, times.monotonic_ms
        self._committed_at_ms = parts.recovered.last_stored_at_ms
        self._last_at_ms = parts.checkpoint.log_at_ms + 1  # a start's ends at its last record, or just before it
        self.time = StoreTime(*times, self._last_at_ms)
        self._plan_flush = FlushPlan(parts, config, self._monotonic_ms())
        self.cleaner = Cleaner(config, parts, times.now_ms, self._set_disk_full)

        # Reading is the reader's alone; its methods are bound here, so that a read passes no call more.
        self._reader = reader = QueueReader(parts.log, parts.queues, config)
        self.read, self.read_newest = reader.read, reader.read_newest
        self.entries, self.queues = reader.entries, reader.queues
        self.batch_topics, self.offset_by_time = reader.batch_topics, reader.offset_by_time
        self.min_offset, self.max_offset, self.spans = reader.min_offset, reader.max_offset, reader.spans
        self.queue_counts_since = reader.queue_counts_since
        self.stored_at, self.entry_stored_at = reader.stored_at, reader.entry_stored_at
        self.first_stored_at, self.earliest_stored_at = reader.first_stored_at, reader.earliest_stored_at
        self.file_start_before = reader.file_start_before
        self.is_near, self.is_in_memory = reader.is_near, reader.is_in_memory

    @classmethod
    def open(
        cls,
        config: StoreConfig,
        *,
        now_ms: Callable[[], int],
        store_host: bytes,
        monotonic_ms: Callable[[], int] | None = None,
        files: Files = OS_FILES,
        repairs: bool = False,
    ) -> Self:
        """Lock, load and recover a directory, which is made if need be.

        Without ``monotonic_ms`` the wall clock is taken for one that nobody sets.
        With ``repairs`` the log is cut where it is damaged: what lies behind is lost, and is said in warnings.

        Raises:
            ConfigError: The directory cannot be used, or was written with other sizes.
            StoreInUseError: Somebody else has it open.
            StoreDamagedError: Damage before valid data, or a file missing between others.
        """
        parts = open_parts(config, now_ms, files, repairs=repairs)
        return cls(config, parts, Times(now_ms, monotonic_ms or now_ms), store_host)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<MessageStore {self.config.root} {self.log_min_offset}..{self.log_max_offset}>"

    @property
    def queue_change_count(self) -> int:
        """A number that is another one after queues have come or gone, as ``spans`` gives them."""
        return self._reader.queue_change_count

    @property
    def log_min_offset(self) -> int:
        """The first position of the log."""
        return self._log.min_offset

    @property
    def log_max_offset(self) -> int:
        """The end of the committed log."""
        return self._log.max_offset

    @property
    def log_append_offset(self) -> int:
        """The end of what is planned, where the next record goes."""
        return self._log.append_offset

    def reconfigure(self, config: StoreConfig) -> None:
        """Go on with other values of ``LIVE_STORE_KEYS``; the other settings are what they were."""
        self.config = config
        self._encoder.set_limits(config)
        for part in (self._plan_flush, self.cleaner, self._reader):
            part.reconfigure(config)

    def timers(self) -> Timers:
        """Return the timer messages of this store, to be opened by ``open_timers``."""
        return Timers(self.config, self._parts.files, self.time_from, self.cold_records)

    # --- writing

    @property
    def store_host(self) -> bytes:
        """The host that records name."""
        return self._encoder.store_host

    def set_store_host(self, store_host: bytes) -> None:
        """Change the host that records name from now on: a broker on a free port learns its port after the start."""
        self._encoder.store_host = store_host

    def subscribe(self, arrivals: Arrivals, coming: Arrivals | None = None) -> Callable[[], None]:
        """Tell of records that become readable from now on, once for each commit; return the call that ends it.

        ``coming`` is told before, when they are in the log and their queue entries are about to be written.
        """
        return self._dispatcher.subscribe(arrivals, coming)

    def take_copies_only(self) -> None:
        """Take no records of this broker any more: they would stand where those of its master go."""
        self._refusal = self._copies_only = StoreNotWritableError("this broker is a slave: its master takes records")

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
        if not self._planned:
            self._last_at_ms = max(self.time.stamp_ms(), self._last_at_ms)
        stored_at_ms = self._last_at_ms  # one for all that is committed together
        queue = self._queues.by_key.get((new.topic, new.queue_id))
        if queue is None or new.sys_flag & WITHOUT_ENTRY:
            queue = self._rules.queue_for_new(new.topic, new.queue_id, new.sys_flag)
        queue_offset = 0 if queue is None else queue.next_offset
        count = 1
        if new.sys_flag & INNER_BATCH and queue is not None:
            new, count = number_inner_batch(new, queue_offset)
        data = self._encoder.encode(new, queue_offset, log.append_offset, stored_at_ms)
        size = len(data)
        if size + BLANK_BYTES > log.room:
            log.roll()
            data = self._encoder.encode(new, queue_offset, log.append_offset, stored_at_ms)  # of the same size
        placed = Appended(  # what ``place_run`` does, for one
            log.append_offset, queue_offset, size, new.topic, new.queue_id, new.sys_flag, stored_at_ms,
            new.property_text, queue, 0, new.parsed,
        )  # fmt: skip
        log.add(data, size)
        self._planned.append(placed)
        if queue is not None:
            queue.next_offset = queue_offset + count
        return placed

    def append_batch(self, head: NewRecord, parts: list[PlainPart]) -> AppendedRun:
        """Plan the records of a batch: one file, one store time, consecutive offsets in the queue of ``head``.

        What the messages of the batch do not say themselves is that of ``head``.

        Raises:
            MessageIllegalError: A record, or all of them together, that no store can hold.
            StoreNotWritableError: The store takes no records at present.
        """
        self._check_writable()
        stored_at_ms = self._last_at_ms = self.stamp_ms()
        queue = self._rules.queue_for_new(head.topic, head.queue_id, head.sys_flag)
        queue_offset = 0 if queue is None else queue.next_offset
        log, encode = self._log, self._encoder.encode_run
        data, sizes = encode(head, parts, (queue_offset, log.append_offset), stored_at_ms)
        if len(data) + BLANK_BYTES > log.file_bytes:
            raise MessageIllegalError(f"batch is {len(data)} bytes, limit is {log.file_bytes - BLANK_BYTES}")
        if len(data) + BLANK_BYTES > log.room:
            log.roll()
            data, sizes = encode(head, parts, (queue_offset, log.append_offset), stored_at_ms)
        placed = place_run(head, [text for _, _, text in parts], sizes, log.append_offset, queue, stored_at_ms)
        log.add(data, len(data))
        self._planned.append(placed)
        return placed

    def append_copy(self, log_offset: int, data: bytes | memoryview) -> None:
        """Write bytes of a master's log where they stand there; ``advance`` makes the whole records readable.

        They continue the log, within one of its files. An empty log begins at the start of any file.

        Raises:
            ValueError: They stand elsewhere, or come from a log with files of another size.
            StoreNotWritableError: The store takes nothing at present; nothing was kept.
        """
        if self._flusher.failure is not None or self._refusal is not self._copies_only:
            self._check_writable(but=self._copies_only)
        if self._planned:
            raise ValueError(f"{len(self._planned)} records of this broker wait for their commit, a copy takes none")
        self._log.add_copy(log_offset, data)
        try:
            self._log.commit()
        except StoreNotWritableError as error:
            if not isinstance(error, StoreFullError):
                self._refuse(error)
            raise
        self._committed_at_ms = self._dispatcher.take_from(self._log) or self._committed_at_ms
        self._last_at_ms = max(self._last_at_ms, self._committed_at_ms)
        fault = self._log.find_fault(max(self._dispatcher.taken_offset, self._log.min_offset))
        if fault is not None:
            self._meet_fault(fault)

    @property
    def planned(self) -> Sequence[Placed]:
        """What waits to be committed."""
        return self._planned

    @property
    def has_planned(self) -> bool:
        """Whether there is something to commit."""
        return bool(self._planned)

    def commit(self, *, leaves_queues: bool = False) -> None:
        """Write all planned records and, unless they have to be flushed first, make them readable.

        ``leaves_queues`` says that an ``advance`` follows at once, which makes them readable then.

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
        if self._is_sync_flush or leaves_queues:
            self._dispatcher.add(planned)
        else:
            self._dispatch(self._log.max_offset, planned)

    def advance(self) -> None:
        """Make committed records readable as far as they are confirmed; what fails for want of room waits."""
        self._dispatch(self.confirm_offset, [])

    def _dispatch(self, confirm_offset: int, planned: list[Placed]) -> None:
        try:
            self._dispatcher.advance(confirm_offset, planned)
        except StoreNotWritableError as error:
            self._refuse(error)
            return
        index = self._index
        if index is not None and index.waiting_records >= INDEX_BATCH_RECORDS and index.is_due:
            self._build_index()

    def tick(self) -> None:
        """Catch up with what waits: queue entries that had no room, and index entries; to be called now and then."""
        refused, self._refusal = self._refusal, self._copies_only
        if refused is not self._refusal and not isinstance(refused, StoreFullError):
            self._refusal = refused
            return
        self.advance()
        if self._index is not None and self._index.may_build:
            self._build_index()
        if self._refusal is self._copies_only:
            self._refusal = self._disk_full or self._copies_only
        if refused is not self._copies_only and self._refusal is self._copies_only:
            _log.warning("accepting writes again: store %s", self.config.root)

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
        """How far the log may be read: what is written, under SYNC_FLUSH what is on disk."""
        return self._flusher.flushed.log_offset if self._is_sync_flush else self._log.max_offset

    def time_from(self, at_least_ms: int) -> StoreTime:
        """Return a time of its own for something that has come further than the log says."""
        return StoreTime(*self._times, max(at_least_ms, self._last_at_ms))

    def stamp_ms(self) -> int:
        """Return the store time of a record that would be stored now; no record of before has a later one."""
        return max(self.time.stamp_ms(), self._last_at_ms)

    # --- reading, as far as the reader cannot do it alone

    def newest_file(self) -> int:
        """Return where the file of the log begins that is written to."""
        return self._log.max_offset - self._log.max_offset % self._log.file_bytes

    def log_bytes(self, log_offset: int, most: int) -> memoryview:
        """Return what is written in one file of the log from a position on, at most so much; nothing outside of it."""
        log = self._log
        size = min(most, log.max_offset - log_offset, log.file_bytes - log_offset % log.file_bytes)
        return log.slice(log_offset, size) or memoryview(b"")

    def last_copied_record(self) -> tuple[int, bytes] | None:
        """Return place and bytes of the last record of a log that takes copies, ``None`` without one."""
        log_offset = self._dispatcher.last_copied_offset
        if log_offset < 0:
            log_offset = self._parts.recovered.last_offset
        record = self._reader.record_at(log_offset) if log_offset >= 0 else None
        return None if record is None else (log_offset, bytes(record))

    def cold_records(self) -> ColdRecords:
        """Return a reader of records for another thread."""
        return ColdRecords(self._parts.files, self._log)

    def record_at(self, log_offset: int, size: int | None = None) -> memoryview | None:
        """Return the record at a log position, ``None`` when none that may be read begins there."""
        return self._reader.record_at(log_offset, size) if log_offset < self.confirm_offset else None

    def topics_since(self, at_ms: int, is_known: Callable[[str], bool]) -> dict[str, int]:
        """Return unknown topics whose newest message recovery has met and is not from before; and their queues' number.

        Batch topics are left out: ``batch_topics`` has them.
        """
        met_from = 0 if self._is_end_doubted else self._parts.recovered.start
        return self._reader.topics_since(at_ms, met_from, is_known)

    def query(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int, *, kind: KeyKind = "K"
    ) -> QueryResult:
        """Return messages that may have the key: a unique key, a word of KEYS, with kind T a tag (``queryMessage``).

        It sees all that is readable: index entries that wait are built first.
        """
        if self._index is None:
            return QueryResult([], [])
        wanted = KeyRange(min(max_count, self.config.max_query_messages), begin_ms, end_ms)
        self._build_index()
        return query(self._index, f"{topic}#T#{key}" if kind == "T" else f"{topic}#{key}", wanted, self.record_at)

    # --- flushing and the end

    @property
    def was_closed_cleanly(self) -> bool:
        """Whether the stop before this start was a clean one."""
        return self._parts.is_clean and not self._is_end_doubted

    def doubt_end(self) -> None:
        """Count the stop before this start as no clean one: tables beside the log were not written with it."""
        self._is_end_doubted = True

    @property
    def master_flushed_offset(self) -> int:
        """How much of its master's log a slave was told to take for flushed; it is kept, and has no effect."""
        return self._plan_flush.master_flushed_offset

    def set_master_flushed_offset(self, log_offset: int) -> None:
        """Keep another one."""
        self._plan_flush.set_master_flushed_offset(log_offset)

    @property
    def flush_failure(self) -> StoreNotWritableError | None:
        """Why a flush failed, after which the store is never writable again."""
        return self._flusher.failure

    @property
    def dispatch_behind_bytes(self) -> int:
        """How much of the committed log is not readable yet."""
        return self._dispatcher.waiting_bytes

    @property
    def flushed_offset(self) -> int:
        """The end of what is on disk for certain."""
        return self._flusher.flushed.log_offset

    def request_flush(self, done: Done) -> None:
        """Bring the committed log to the disk on the flusher's thread, where ``done`` is called then.

        Requests that wait together are served together; each different ``done`` is called once for them.
        """
        self._flusher.request_log(self._take_log(), done)

    def flush_when_due(self, done: Done | None = None) -> None:
        """Ask for what the settings want flushed by now: log, queues, index, checkpoint; to be called now and then.

        ``done`` is called as by ``request_flush``, and not at all when the log is not due.
        """
        if self._plan_flush.is_log_due(self._monotonic_ms()):
            self._flusher.request_log(self._take_log(), done)
        work = self._plan_flush.take_files(self._next_at_ms(), self._monotonic_ms())
        if not work.is_empty or self._flusher.are_files_put_off:
            self._flusher.request_files(work)

    def flush(self) -> None:
        """Bring everything committed to the disk on the caller's thread, make it readable, then flush what else is due.

        Raises:
            StoreNotWritableError: A flush failed, or could not be done for want of a descriptor.
        """
        self._flusher.flush_log(self._take_log())
        self.advance()
        self._flusher.flush_files(self._plan_flush.take_files(self._next_at_ms(), self._monotonic_ms()))

    def _take_log(self) -> LogWork:
        return self._plan_flush.take_log(self._committed_at_ms, self._next_at_ms(), self._monotonic_ms())

    def _next_at_ms(self) -> int:
        """Return the least store time of the next record to be committed; a copied one may have that of the last."""
        if self._copies_only is not None:
            return self._committed_at_ms
        return self._last_at_ms if self._planned else self.time.stamp_ms()

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
        if isinstance(self._refusal, StoreFullError) or self._refusal is self._copies_only:
            self._refusal = None
        self.commit()
        self._flusher.flush_log(self._take_log())
        self.advance()
        if self.refusal is not None:
            raise self.refusal
        if self._index is not None:
            self._index.save()
        self._log.remove_spare()
        newest_at_ms = self._committed_at_ms
        self._flusher.flush_log(self._plan_flush.take_log(newest_at_ms, newest_at_ms + 1, self._monotonic_ms()))
        self._flusher.flush_files(self._plan_flush.take_rest(newest_at_ms))
        self._parts.files.unlink(abort_path(self.config))
        self._parts.files.sync_directory(self.config.root)

    def clean_now(self) -> None:
        """Do one round of cleaning on the caller's thread, without its pauses."""
        for step in self.cleaner.round():
            step.run()

    def set_batch_topics(self, topics: Collection[str]) -> None:
        """Have the queues of topics, all or none, count by messages and keep batches whole (``queue.type=BatchCQ``).

        Raises:
            ConfigError: One has queues of the other kind.
        """
        self._queues.set_batch_topics(topics)

    def delete_topic(self, topic: str) -> None:
        """Remove the queues of a topic; its records stay in the log until their files go (raises ``OSError``).

        Records on their way to these queues get no entry either.
        """
        leave_topic(self._planned, topic)
        self._dispatcher.forget_topic(topic)
        self._queues.remove_topic(topic)

    # --- inside

    def _meet_fault(self, fault: CopyFault) -> None:
        if fault.is_of_sizes:
            self._log.take_back(fault.log_offset)
            raise ValueError(f"the log of the master has other files, {OTHER_SIZES}: {fault.reason}")
        if fault.log_offset != self._fault_at:
            text = "the master's log is damaged at log offset %d, nothing behind it can be read here: %s"
            _log.error(text, fault.log_offset, fault.reason)
        self._fault_at = fault.log_offset

    def _check_writable(self, but: StoreNotWritableError | None = None) -> None:
        if isinstance(self._refusal, StoreFullError):
            self.tick()
        refusal = self.refusal
        if refusal is not but:
            assert refusal is not None, "what is passed over is none, or why the store takes copies only"
            raise type(refusal)(*refusal.args)

    def _set_disk_full(self, error: DiskFullError | None) -> None:
        self._disk_full = error
        if self._refusal is self._copies_only or isinstance(self._refusal, DiskFullError):
            self._refusal = error or self._copies_only

    def _refuse(self, error: StoreNotWritableError) -> None:
        if str(error) != self._last_refusal:
            _log.error("rejecting writes: store %s: %s", self.config.root, error)
        self._refusal, self._last_refusal = error, str(error)

    def _build_index(self) -> None:
        index = self._index
        if index is None:
            return
        try:
            index.build()
        except SlotsUnreadableError as error:
            _log.warning("index build paused until %s can be read: %s", index.files[-1].path, error)
        except OSError as error:
            self._refuse(translate_write_error(error))
