"""When what is flushed: what the next rounds of the flusher have to bring to the disk.

Rules (store.md §6.1, §6.2):

    log         each flushIntervalCommitLog, with flushCommitLogLeastPages written or a file full; everything after
                flushCommitLogThoroughInterval, under SYNC_FLUSH each time, and with every request for a flush
    queues      each flushIntervalConsumeQueue, those with flushConsumeQueueLeastPages written or a file full; all
                of them, with new directories and the index, after flushConsumeQueueThoroughInterval
    index       a file when it is full
    checkpoint  each second when it has changed, and with the two above

- The owner asks with the monotonic time; nothing is written when nothing has changed.
- A time in the checkpoint is an instant up to which every record is on disk, in the log or in the queues, and that no
  record gets any more: while the clock stands at the last record's time, it is the millisecond before.
"""

from .files.store_config import StoreConfig
from .recovery.flusher import FileWork, Flushed, LogWork
from .store_parts import StoreParts

_PAGE_BYTES = 4_096
_CHECKPOINT_INTERVAL_MS = 1_000


class FlushPlan:
    """Collects the work of the flusher; used on the thread that owns the store.

    ``newest_at_ms`` is the store time of the last committed record, ``next_at_ms`` the least that the next one gets.
    """

    def __init__(self, parts: StoreParts, config: StoreConfig, monotonic_ms: int) -> None:
        self._parts = parts
        self._config = config
        self._taken = parts.flusher.flushed
        self._saved = self._checkpoint = parts.checkpoint
        self._spare_path = ""
        self._log_seen_at_ms = self._log_taken_at_ms = monotonic_ms
        self._queues_seen_at_ms = self._checkpoint_at_ms = monotonic_ms
        is_settled = not parts.queue_space.dirty_paths
        self._queues_taken_at_ms = monotonic_ms if is_settled else monotonic_ms - config.flush_queue_thorough_ms

    def reconfigure(self, config: StoreConfig) -> None:
        """Use other intervals and numbers of pages from now on."""
        self._config = config

    @property
    def master_flushed_offset(self) -> int:
        """How much of the log of its master a slave was told to take for flushed."""
        return self._checkpoint.master_flushed_offset

    def set_master_flushed_offset(self, log_offset: int) -> None:
        """Have the checkpoint say another one."""
        self._checkpoint = self._checkpoint._replace(master_flushed_offset=log_offset)

    def is_log_due(self, monotonic_ms: int) -> bool:
        """Tell whether the log is to be flushed though nobody has asked for it."""
        if self._parts.flusher.is_log_put_off:
            return True
        if monotonic_ms - self._log_seen_at_ms < self._config.flush_log_interval_ms:
            return False
        self._log_seen_at_ms = monotonic_ms
        if monotonic_ms - self._log_taken_at_ms >= self._config.flush_log_thorough_ms:
            return True
        taken, end, file_bytes = self._taken.log_offset, self._parts.log.max_offset, self._config.segment_bytes
        if self._config.is_sync_flush and end != taken:
            return True
        pages = end // _PAGE_BYTES - taken // _PAGE_BYTES
        return pages >= self._config.flush_log_least_pages or end // file_bytes != taken // file_bytes

    def take_log(self, newest_at_ms: int, next_at_ms: int, monotonic_ms: int) -> LogWork:
        """Return what was written to the log since the last call."""
        log = self._parts.log
        self._log_taken_at_ms = monotonic_ms
        until_ms = _until(newest_at_ms, next_at_ms) if newest_at_ms else self._taken.until_ms
        self._taken = Flushed(log.max_offset, until_ms)
        segments = log.take_unflushed()
        full = [segment.descriptor for segment in segments if segment.is_full]
        return LogWork(self._taken, segments, full, log.take_new_directories())

    def take_files(self, next_at_ms: int, monotonic_ms: int) -> FileWork:
        """Return what is due of all that is not the log."""
        work = FileWork(spare=self._take_spare())
        is_thorough = monotonic_ms - self._queues_taken_at_ms >= self._config.flush_queue_thorough_ms
        if is_thorough:
            self._queues_taken_at_ms = self._queues_seen_at_ms = monotonic_ms
            self._take_all_files(work)
        elif monotonic_ms - self._queues_seen_at_ms >= self._config.flush_queue_interval_ms:
            self._queues_seen_at_ms = monotonic_ms
            work.paths = self._parts.queue_space.dirty_paths.take(self._config.flush_queue_least_pages * _PAGE_BYTES)
        has_full_index = self._take_full_index_files(work)
        self._raise_checkpoint(next_at_ms)
        if is_thorough or has_full_index or monotonic_ms - self._checkpoint_at_ms >= _CHECKPOINT_INTERVAL_MS:
            self._checkpoint_at_ms = monotonic_ms
            self._take_checkpoint(work)
        return work

    def take_rest(self, newest_at_ms: int) -> FileWork:
        """Return everything but the log, which is flushed: no record follows."""
        work = FileWork()
        self._take_all_files(work)
        self._raise_checkpoint(newest_at_ms + 1)
        self._take_checkpoint(work)
        return work

    def _take_all_files(self, work: FileWork) -> None:
        queues, index = self._parts.queue_space, self._parts.index_space
        work.paths = [*queues.dirty_paths.take(), *sorted(index.dirty_paths)]
        work.directories = sorted(queues.new_directories | index.new_directories)
        for taken in (queues.new_directories, index.dirty_paths, index.new_directories):
            taken.clear()

    def _take_full_index_files(self, work: FileWork) -> bool:
        space, index = self._parts.index_space, self._parts.index
        filled = index.full_paths() & space.dirty_paths if index is not None and space.dirty_paths else set[str]()
        space.dirty_paths -= filled
        work.paths += sorted(filled)
        if filled:
            work.directories += sorted(space.new_directories)
            space.new_directories.clear()
        return bool(filled)

    def _take_spare(self) -> tuple[str, int] | None:
        spare = self._parts.log.spare()
        if spare is None or spare[0] == self._spare_path:
            return None
        self._spare_path = spare[0]
        return spare

    def _raise_checkpoint(self, next_at_ms: int) -> None:
        parts, before = self._parts, self._checkpoint
        dispatcher, space, index = parts.dispatcher, parts.queue_space, parts.index
        queues_at_ms, index_at_ms = before.queues_at_ms, before.index_at_ms
        if not space.dirty_paths and not space.new_directories:
            newest_at_ms = dispatcher.last_stored_at_ms or parts.recovered.last_stored_at_ms
            is_last = not dispatcher.is_behind and newest_at_ms < next_at_ms
            queues_at_ms = max(queues_at_ms, newest_at_ms if is_last else newest_at_ms - 1)
        if index is not None:
            index_at_ms = max(index_at_ms, index.full_end_at_ms)
        self._checkpoint = before._replace(
            log_at_ms=parts.flusher.flushed.until_ms, queues_at_ms=queues_at_ms, index_at_ms=index_at_ms
        )

    def _take_checkpoint(self, work: FileWork) -> None:
        if self._checkpoint != self._saved:
            self._saved = work.checkpoint = self._checkpoint


def _until(newest_at_ms: int, next_at_ms: int) -> int:
    return newest_at_ms if newest_at_ms < next_at_ms else newest_at_ms - 1
