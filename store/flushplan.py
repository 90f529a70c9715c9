"""What the next flush has to bring to the disk.

Rules (store.md §6.1, §6.2):

- The log with every request; queues, index and checkpoint when ``flushIntervalConsumeQueue`` has passed.
- Nothing is written when nothing has changed: an idle store leaves the disk alone.
- The checkpoint that a request carries is true once everything up to that request is on disk.
"""

from .flush import FlushWork
from .opening import Parts


class FlushPlan:
    """Collects the work of flush requests; used on the thread that owns the store."""

    def __init__(self, parts: Parts, queue_interval_ms: int, now_ms: int) -> None:
        self._parts = parts
        self._queue_interval_ms = queue_interval_ms
        self._queues_taken_at_ms = now_ms
        self._checkpoint = self._requested = parts.checkpoint

    def take(self, committed_at_ms: int, now_ms: int) -> FlushWork:
        """Return what was written since the last call; ``committed_at_ms`` is the store time of the last record."""
        work = self._take_log(committed_at_ms)
        spare = self._parts.log.spare()
        if spare is not None:
            work.spare = spare
        if now_ms - self._queues_taken_at_ms >= self._queue_interval_ms:
            self._queues_taken_at_ms = now_ms
            self._take_queues(work)
        return work

    def take_all(self, committed_at_ms: int) -> FlushWork:
        """Return everything that is left, for a clean stop."""
        work = self._take_log(committed_at_ms)
        self._take_queues(work)
        return work

    def _take_log(self, committed_at_ms: int) -> FlushWork:
        log = self._parts.log
        self._checkpoint = self._checkpoint._replace(log_at_ms=committed_at_ms)
        work = FlushWork(log.max_offset, [(segment, segment.is_full) for segment in log.take_unflushed()])
        directory = log.take_new_directory()
        if directory is not None:
            work.directories.add(directory)
        return work

    def _take_queues(self, work: FlushWork) -> None:
        queues, files, index = self._parts.queue_space, self._parts.index_space, self._parts.index
        work.paths |= queues.dirty_paths | files.dirty_paths
        work.directories |= queues.new_directories
        if files.has_new_files:
            work.directories.add(files.directory)
        queues.dirty_paths, queues.new_directories = set(), set()
        files.dirty_paths, files.has_new_files = set(), False
        before = self._checkpoint
        self._checkpoint = before._replace(
            queues_at_ms=self._parts.dispatcher.last_stored_at_ms or before.queues_at_ms,
            index_at_ms=max(index.full_end_at_ms if index is not None else 0, before.index_at_ms),
        )
        if self._checkpoint != self._requested:
            self._requested = work.checkpoint = self._checkpoint
