"""Opening a store: where the log ends, and that queues and index say the same as the log.

Rules (store.md §7; stricter than Java in §7.6 and §15.2):

- After a clean stop the last ``TAIL_BYTES`` of the log are walked, after an unclean one everything from the newest
  file whose first record was surely flushed (``checkpoint``), without one everything.
- What the walk yields must stand in the queues and the index; what is missing or wrong is written. Broken queues and
  a missing index are written anew from the whole log.
- A torn tail is cut: zeros to the end of its file, later files removed, before anything is written. Bytes that are no
  record before valid data stop the start, with ``StoreDamagedError``.
- Entries that point behind the end of the log are cut, too.
"""

import logging
import sys
from collections.abc import Sequence
from itertools import islice
from typing import Final, NamedTuple

from ..common.errors import StoreDamagedError
from ..common.record import Record, decode_record
from ..common.walk import check_record
from .checkpoint import Checkpoint
from .commitlog import CommitLog
from .config import ENTRY_BYTES, StoreConfig
from .consumequeue import PRE_BLANK_SIZE, ConsumeQueue
from .dispatched import Appended, has_keys
from .files import Files, zero_range
from .index import INDEX_BATCH_RECORDS, Index
from .queues import Queues
from .requeue import Requeue, describe
from .scan import Stop, Walk, find_record
from .segments import SegmentFile

TAIL_BYTES: Final = 8 << 20
_LOOK_BEHIND: Final = 16
_log = logging.getLogger(__name__)


class Recovered(NamedTuple):
    """What the store goes on from: the end of the log and the store time of its last record."""

    end: int
    last_stored_at_ms: int


class Recovery:
    """One start of a store; ``run`` leaves log, queues and index ready for the next record."""

    def __init__(self, files: Files, config: StoreConfig, log: CommitLog, queues: Queues, index: Index | None) -> None:
        self._files = files
        self._config = config
        self._log = log
        self._queues = queues
        self._index = index
        self._checkpoint = Checkpoint()
        self._is_clean = False

    def run(self, segments: Sequence[SegmentFile], checkpoint: Checkpoint, *, is_clean: bool) -> Recovered:
        """Recover (raises ``StoreDamagedError``, ``OSError``)."""
        self._checkpoint, self._is_clean = checkpoint, is_clean
        if not segments:
            return self._run_without_log()
        first = segments[0].base_offset
        self._log.set_bounds(first, segments[-1].base_offset + segments[-1].size)
        known_end = self._known_end()
        start = self._start(segments, known_end)
        self._prepare_index(segments, start)
        recovered = self._walk(segments, start, known_end)
        for queue in self._queues:
            queue.correct_min_offset(first)
        return recovered

    def _run_without_log(self) -> Recovered:
        for queue in self._queues:
            if queue.max_offset and self._is_clean:
                raise StoreDamagedError(
                    f"{self._config.log_directory} is empty, but {queue.directory} has entries",
                    path=self._config.log_directory,
                    position=0,
                )
            self._queues.clear(queue)
        if self._index is not None:
            self._index.remove_from(0)
        self._log.set_bounds(0, 0)
        return Recovered(0, 0)

    def _walk(self, segments: Sequence[SegmentFile], start: int, known_end: int) -> Recovered:
        requeue = self._requeue(start, segments[0].base_offset)
        walk = Walk(segments, self._view, checks_crc=self._config.checks_crc)
        index = self._index
        index_end = index.end_log_offset if index is not None else sys.maxsize
        last_record = None
        for log_offset, record in walk.walk_from(start):
            last_record = record
            if log_offset <= index_end and requeue.confirm(log_offset, record):
                continue
            appended = requeue.feed(record)
            if index is not None and log_offset > index_end:
                _add_to_index(index, appended)
        last_at_ms = decode_record(last_record).stored_at_ms if last_record is not None else 0
        assert walk.stop is not None, "set whenever the iteration ends"
        self._judge_end(walk.stop, segments, known_end, last_at_ms)
        self._cut_log(walk.stop, segments)
        requeue.finish()
        self._rebuild(requeue.broken, segments)
        if index is not None and index.end_log_offset >= walk.stop.log_offset:
            index.restore(-1, walk.stop.log_offset)
        return Recovered(walk.stop.log_offset, last_at_ms)

    def _requeue(self, start: int, first: int) -> Requeue:
        requeue = Requeue(self._queues, start, self._config.delays_ms, is_whole_log=start == first)
        for queue in self._queues.broken:
            _log.warning("queue files in %s cannot be used and are written anew", queue.directory)
            self._queues.clear(queue)
        if start != first:
            requeue.skip(self._queues.broken)
        return requeue

    def _rebuild(self, broken: set[ConsumeQueue], segments: Sequence[SegmentFile]) -> None:
        if not broken:
            return
        first = segments[0].base_offset
        for queue in broken:
            _log.warning("queue %s does not hold what the log holds and is written anew", queue.directory)
            self._queues.clear(queue)
        requeue = Requeue(self._queues, first, self._config.delays_ms, is_whole_log=True)
        requeue.limit_to(broken)
        walk = Walk(segments, self._view, checks_crc=False)
        for log_offset, record in walk.walk_from(first):
            if log_offset >= self._log.max_offset:
                break
            requeue.feed(record)
        if walk.stop is not None and walk.stop.log_offset < self._log.max_offset:
            raise _damaged(walk.stop)
        requeue.finish()

    def _view(self, segment: SegmentFile) -> memoryview:
        return self._log.segment_view(segment.base_offset)

    # --- where to start

    def _known_end(self) -> int:
        ends = [entry[0] + entry[1] for entry in map(_last_entry, self._queues) if entry is not None]
        return max(ends, default=-1)

    def _start(self, segments: Sequence[SegmentFile], known_end: int) -> int:
        if not self._is_clean:
            for segment in reversed(segments):
                if 0 < self._first_stored_at(segment) <= self._checkpoint.sure_at_ms:
                    return segment.base_offset
            return segments[0].base_offset
        return self._tail_start(segments, known_end)

    def _tail_start(self, segments: Sequence[SegmentFile], known_end: int) -> int:
        """Return a position about ``TAIL_BYTES`` before the end: a file's, or a record's that a queue knows."""
        wanted = known_end - TAIL_BYTES
        if wanted <= segments[0].base_offset:
            return segments[0].base_offset
        segment = [one for one in segments if one.base_offset <= wanted][-1]
        for queue in self._queues:
            entry = _last_entry(queue)
            if entry is not None and entry[0] + entry[1] == known_end:
                near = queue.entry(queue.first_at(wanted, max(queue.first_base, 0) // ENTRY_BYTES, queue.max_offset))
                holder = next((one for one in segments if near is not None and one.holds(near[0])), None)
                if near is not None and holder is not None and self._is_record(holder, near[0]):
                    return near[0]
        return segment.base_offset

    def _is_record(self, segment: SegmentFile, log_offset: int) -> bool:
        view, position = self._view(segment), log_offset - segment.base_offset
        return check_record(view, position, log_offset, checks_crc=self._config.checks_crc) > 0

    def _first_stored_at(self, segment: SegmentFile) -> int:
        if not self._is_record(segment, segment.base_offset):
            return 0
        return decode_record(self._view(segment)).stored_at_ms

    # --- the end of the log

    def _judge_end(self, stop: Stop, segments: Sequence[SegmentFile], known_end: int, last_at_ms: int) -> None:
        """Raise ``StoreDamagedError`` if cutting at the stop would lose records that were flushed.

        A sound record behind the stop that is older than the last one before it is what the Java broker left lying
        when it cut its log after a crash and went on writing.
        """
        behind = self._record_behind(stop, segments, known_end)
        if behind is not None:
            sure_at_ms = self._checkpoint.log_at_ms
            is_sure = self._is_clean or not sure_at_ms or behind.stored_at_ms <= sure_at_ms
            if is_sure and behind.stored_at_ms >= last_at_ms:
                raise _damaged(stop)
        if stop.is_torn or (self._is_clean and known_end > stop.log_offset):
            _log.warning("the log ends at %s; queues know records up to %d", stop, known_end)

    def _record_behind(self, stop: Stop, segments: Sequence[SegmentFile], known_end: int) -> Record | None:
        for segment in segments:
            if segment.base_offset >= stop.log_offset and self._is_record(segment, segment.base_offset):
                return decode_record(self._view(segment))
            is_stopped_in = segment.base_offset < stop.log_offset < segment.base_offset + segment.size
            if segment.path == stop.path and (stop.is_torn or (is_stopped_in and known_end > stop.log_offset)):
                view = self._view(segment)
                position = find_record(view, segment.base_offset, stop.position + 1)
                if position is not None:
                    return decode_record(view, position)
        return None

    def _cut_log(self, stop: Stop, segments: Sequence[SegmentFile]) -> None:
        for segment in segments:
            if segment.base_offset >= stop.log_offset:
                self._files.unlink(segment.path)
            elif segment.base_offset + segment.size > stop.log_offset:
                self._zero_tail(segment, stop.log_offset - segment.base_offset)
        self._log.set_bounds(segments[0].base_offset, stop.log_offset)

    def _zero_tail(self, segment: SegmentFile, position: int) -> None:
        descriptor = self._files.open(segment.path, writable=True)
        try:
            zero_range(self._files, descriptor, position, segment.size)
            if not self._is_clean:
                self._files.sync(descriptor)
        finally:
            self._files.close(descriptor)

    # --- the index

    def _prepare_index(self, segments: Sequence[SegmentFile], start: int) -> None:
        index = self._index
        if index is None:
            return
        if not self._is_clean:
            index.restore(self._checkpoint.index_at_ms, start)
        if not self._ends_at_record(index, segments):
            _log.warning("the index ends at %d, where no record is", index.end_log_offset)
            index.restore(-1, start)
        if not self._ends_at_record(index, segments) or self._lacks_file(index, segments):
            index.remove_from(0)
        self._index_before(index, segments, start)

    def _ends_at_record(self, index: Index, segments: Sequence[SegmentFile]) -> bool:
        end = index.end_log_offset
        holder = next((one for one in segments if one.holds(end)), None)
        if holder is None:
            return end < segments[0].base_offset
        return self._is_record(holder, end)

    def _lacks_file(self, index: Index, segments: Sequence[SegmentFile]) -> bool:
        """Tell whether a record with keys, soon behind the end of a file, lies before the next one begins."""
        end = segments[0].base_offset - 1
        for file in index.files:
            walk = Walk(segments, self._view, checks_crc=False).walk_from(max(end, segments[0].base_offset))
            for log_offset, record in islice(walk, _LOOK_BEHIND):
                if log_offset >= file.begin_log_offset:
                    break
                if log_offset > end and has_keys(describe(record)):
                    _log.warning("the index lacks what comes before %s, and is written anew", file.path)
                    return True
            end = file.end_log_offset
        return False

    def _index_before(self, index: Index, segments: Sequence[SegmentFile], start: int) -> None:
        end = index.end_log_offset
        begin = max(end, segments[0].base_offset)
        if begin >= start:
            return
        walk = Walk(segments, self._view, checks_crc=False)
        for log_offset, record in walk.walk_from(begin):
            if log_offset >= start:
                return
            if log_offset > end:
                _add_to_index(index, describe(record))
        if walk.stop is not None and walk.stop.log_offset < start:
            raise _damaged(walk.stop)


def _add_to_index(index: Index, record: Appended) -> None:
    index.pending.append(record)
    if len(index.pending) >= INDEX_BATCH_RECORDS:
        index.build()


def _last_entry(queue: ConsumeQueue) -> tuple[int, int, int] | None:
    entry = queue.entry(queue.max_offset - 1) if queue.max_offset else None
    return None if entry is None or entry[1] == PRE_BLANK_SIZE else entry


def _damaged(stop: Stop) -> StoreDamagedError:
    return StoreDamagedError(
        f"{stop.path} is damaged at position {stop.position}, before valid data: {stop.reason}",
        path=stop.path,
        position=stop.position,
    )
