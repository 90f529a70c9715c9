"""Opening a store: where the log ends, and that queues and index say the same as the log.

Rules (store.md §7; stricter than Java in §7.6 and §15.2):

- After a clean stop the last ``TAIL_BYTES`` of the log are walked, after an unclean one everything from the newest
  file whose first record was surely flushed (``checkpoint``), without one everything.
- What the walk yields must stand in the queues and the index; what is missing or wrong is written. Broken queues and
  a missing index are written anew from the whole log.
- A torn tail is cut: zeros to the end of its file, later files removed, before anything is written. Bytes that are no
  record before valid data (``logtail``) stop the start with ``StoreDamagedError``; with ``repairs`` the log is cut
  there, and what is lost is said.
- Entries that point behind the end of the log are cut, too.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final, NamedTuple

from ...common.errors import StoreDamagedError
from ..commitlog.commit_log import CommitLog
from ..commitlog.log_end import Stop
from ..commitlog.logcut import cut_log, damaged, give_up
from ..commitlog.logtail import Validity, find_valid
from ..consumequeue.consume_queue import PRE_BLANK_SIZE, ConsumeQueue
from ..consumequeue.entry_rules import EntryRules
from ..consumequeue.queue_table import Queues
from ..files.checkpoint import Checkpoint
from ..files.files import Files
from ..files.segments import SegmentFile, missing_before
from ..files.store_config import StoreConfig
from ..index.key_index import Index
from .indexrecovery import index_before, prepare_index
from .logsource import LogSource, Redispatch
from .queue_rebuild import Requeue

TAIL_BYTES: Final = 8 << 20
_log = logging.getLogger(__name__)


class Recovered(NamedTuple):
    """What the store goes on from: the end of the log, the store time of its last record, where the walk began."""

    end: int
    last_stored_at_ms: int
    start: int = 0


class Recovery:
    """One start of a store; ``run`` leaves log, queues and index ready for the next record."""

    def __init__(self, files: Files, config: StoreConfig, log: CommitLog, queues: Queues, index: Index | None) -> None:
        self._files = files
        self._config = config
        self._log = log
        self._queues = queues
        self._rules = EntryRules(queues, config.delays_ms)
        self._index = index
        self._checkpoint = Checkpoint()
        self._is_clean = False
        self._mapped = ("", memoryview(b""))
        self._source = LogSource((), self._view)
        self.behind: Sequence[SegmentFile] = ()
        """Files of the log that lie behind a missing one."""

    def run(
        self, segments: Sequence[SegmentFile], checkpoint: Checkpoint, *, is_clean: bool, repairs: bool = False
    ) -> Recovered:
        """Recover; with ``repairs`` damage is cut off (raises ``StoreDamagedError``, ``OSError``)."""
        self._checkpoint, self._is_clean = checkpoint, is_clean
        while segments:
            self._log.set_bounds(segments[0].base_offset, segments[-1].base_offset + segments[-1].size)
            try:
                return self._recover(segments)
            except StoreDamagedError as damage:
                if not repairs:
                    raise
                segments = give_up(self._files, segments, damage)
        return self._run_without_log(repairs=repairs)

    def _recover(self, segments: Sequence[SegmentFile]) -> Recovered:
        config = self._config
        self._source = LogSource(segments, self._view, config.checks_crc, config.demands_seals)
        known_end = self._known_end()
        start = self._start(known_end)
        if self._index is not None:
            prepare_index(self._index, self._source, start, None if self._is_clean else self._checkpoint.index_at_ms)
            damage = index_before(self._index, self._source, start)
            if damage is not None:
                raise self._damaged(damage)
        recovered = self._walk(start, known_end)
        for queue in (*self._queues, *self._queues.batches):
            queue.correct_min_offset(segments[0].base_offset)
        return recovered

    def _run_without_log(self, *, repairs: bool) -> Recovered:
        for queue in (*self._queues, *self._queues.batches):
            if queue.max_offset and self._is_clean and not repairs:
                where = self._config.all_log_directories[0]
                reason = f"it is empty, but {queue.directory} has entries"
                raise self._damaged(Stop(where, 0, 0, reason, is_torn=False))
        for queue in self._queues:
            self._queues.clear(queue)
        for queue in self._queues.batches:
            self._queues.batches.clear(queue)
        if self._index is not None:
            self._index.remove_from(0)
        self._log.set_bounds(0, 0)
        return Recovered(0, 0)

    def _walk(self, start: int, known_end: int) -> Recovered:
        requeue = self._requeue(start)
        walk = Redispatch(self._source, requeue, self._index)
        stop = walk.run(start)
        assert stop is not None, "a walk without an end to stop at ends at the log's"
        self._judge_end(stop, known_end, walk.last_at_ms)
        kept = cut_log(self._files, [*self._source.segments, *self.behind], stop.log_offset)
        self._log.set_bounds(self._source.first, stop.log_offset)
        if kept:
            self._source = replace(self._source, segments=kept)
        requeue.finish()
        self._rebuild(requeue)
        if self._index is not None and self._index.end_log_offset >= stop.log_offset:
            self._index.restore(-1, stop.log_offset)
            index_before(self._index, self._source, stop.log_offset)
        return Recovered(stop.log_offset, walk.last_at_ms, start)

    def _requeue(self, start: int) -> Requeue:
        requeue = Requeue(self._queues, self._rules, start, is_whole_log=start == self._source.first)
        for queue in (*self._queues.broken, *self._queues.batches.broken):
            _log.warning("consume queue %s is damaged, rebuilding it from the log", queue.directory)
        for queue in self._queues.broken:
            self._queues.clear(queue)
        for queue in self._queues.batches.broken:
            self._queues.batches.clear(queue)
        if start != self._source.first:
            requeue.skip(self._queues.broken)
            requeue.batches.skip(self._queues.batches.broken)
        return requeue

    def _rebuild(self, walked: Requeue) -> None:
        """Write the queues anew which the walk found to lack entries of records before its start."""
        broken, broken_batches = walked.broken, walked.batches.broken
        if not broken and not broken_batches:
            return
        for queue in (*broken, *broken_batches):
            _log.warning("consume queue %s lacks records of the log, rebuilding it from the log", queue.directory)
        for queue in broken:
            self._queues.clear(queue)
        for queue in broken_batches:
            self._queues.batches.clear(queue)
        requeue = Requeue(self._queues, self._rules, self._source.first, is_whole_log=True)
        requeue.limit_to(broken)
        requeue.batches.limit_to(broken_batches)
        stop = Redispatch(self._source.unchecked(), requeue, None).run(self._source.first, self._log.max_offset)
        if stop is not None and stop.log_offset < self._log.max_offset:
            raise self._damaged(stop)
        requeue.finish()

    def _damaged(self, stop: Stop) -> StoreDamagedError:
        return damaged(stop, self._config.root)

    def _view(self, segment: SegmentFile) -> memoryview:
        path, view = self._mapped
        if path != segment.path:
            view = self._files.map_written(segment.path, segment.size)
            self._mapped = segment.path, view
        return view

    # --- where to start

    def _known_end(self) -> int:
        ends = [entry[0] + entry[1] for entry in map(_last_entry, self._entry_queues()) if entry is not None]
        return max(ends, default=-1)

    def _entry_queues(self) -> Iterable[ConsumeQueue]:
        """Return all queues that name records; of batch queues, their units."""
        return chain(self._queues, (queue.slots for queue in self._queues.batches))

    def _start(self, known_end: int) -> int:
        if self._is_clean:
            return self._tail_start(known_end)
        for segment in reversed(self._source.segments):
            record = self._source.record_at(segment.base_offset)
            if record is not None and 0 < record.stored_at_ms <= self._checkpoint.sure_at_ms:
                return segment.base_offset
        return self._source.first

    def _tail_start(self, known_end: int) -> int:
        """Return a position about ``TAIL_BYTES`` before the end: a file's, or a record's that a queue knows."""
        wanted = known_end - TAIL_BYTES
        if wanted <= self._source.first:
            return self._source.first
        for queue in self._entry_queues():
            entry = _last_entry(queue)
            if entry is not None and entry[0] + entry[1] == known_end:
                near = queue.entry(queue.first_at(wanted, queue.min_offset, queue.max_offset))
                if near is not None and self._source.record_at(near[0]) is not None:
                    return near[0]
        return [one.base_offset for one in self._source.segments if one.base_offset <= wanted][-1]

    # --- the end of the log

    def _judge_end(self, stop: Stop, known_end: int, last_at_ms: int) -> None:
        """Raise ``StoreDamagedError`` if cutting at the stop would lose records that were flushed."""
        log_at_ms = self._checkpoint.log_at_ms
        validity = Validity(last_at_ms, None if self._is_clean or not log_at_ms else log_at_ms)
        for segment in self._source.segments:
            if segment.base_offset + segment.size <= stop.log_offset:
                continue
            start = stop.position + 1 if segment.path == stop.path else 0
            if find_valid(self._files, segment, self._view(segment), start, validity) is not None:
                raise self._damaged(stop)
        for segment in self.behind:
            if find_valid(self._files, segment, self._view(segment), 0, validity) is not None:
                raise missing_before(segment, self._source.segments[-1], self._config.root)
        if stop.is_torn or (self._is_clean and known_end > stop.log_offset):
            _log.warning("log truncated at %s; consume queues name records up to log offset %d", stop, known_end)


def _last_entry(queue: ConsumeQueue) -> tuple[int, int, int] | None:
    entry = queue.entry(queue.max_offset - 1) if queue.max_offset else None
    return None if entry is None or entry[1] == PRE_BLANK_SIZE else entry
