"""Opening a store: where the log ends, and that queues and index say the same as the log.

Rules (store.md §7; stricter than Java in §7.6 and §15.2):

- After a clean stop the last ``TAIL_BYTES`` of the log are walked, after an unclean one everything from the newest
  file whose first record was surely flushed (``checkpoint``), without one everything.
- What the walk yields must stand in the queues and the index; what is missing or wrong is written. Broken queues and
  a missing index are written anew from the whole log.
- A torn tail is cut: zeros to the end of its file, later files removed, before anything is written. Bytes that are no
  record before valid data (``log_end``) stop the start with ``StoreDamagedError``; with ``repairs`` the log is cut
  there, and what is lost is said.
- Entries that point behind the end of the log are cut, too.

Rules of a walk (``LogReplay``):

- A walk begins record by record and goes on in blocks, with numpy, once it has gone ``SMALL_BYTES``: a small log is
  opened without loading numpy, a large one at the speed of the checksums.
- Both ways end at the same position for the same reason, and leave the same queues and the same index.

Rules of the index (store.md §4.6, §7.4; stricter than Java, which loses entries here):

- After an unclean stop the entries written since the last full file are checked: each must point to the one before it
  in its slot, and lie not before it in the log. So a page that never reached the disk shows, and what follows it goes.
  The newest record loses its entries, too, since they may be incomplete.
- An index that does not end at a record, or lacks what lies before one of its files, is written anew.

Rules of the flush behind it: what the start has read is on the disk before anybody relies on it (store.md §6.2, §7):

- What a killed process had written may be in memory only: after an unclean start the files of the log that were
  walked are flushed before a record is read or written, and the queue files that the walk found good with the first
  round of the flusher, which is due at once. After a clean start it is the last file of the log, whose end may have
  been cut.
- Queue files that recovery has written are flushed at once: the checkpoint that is on the disk speaks for them.
- The checkpoint is written at each start: records that are written next and torn by a power failure are newer than it,
  so the following start knows them for a torn end and not for damage.
"""

import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from ...common.errors import StoreDamagedError
from ...common.record import Record, check_record, decode_record
from ..commitlog.commit_log import CommitLog
from ..commitlog.log_end import LogWalk, Stop, Validity, cut_log, damaged, find_valid, give_up
from ..consumequeue.appended import Appended, describe
from ..consumequeue.consume_queue import PRE_BLANK_SIZE, ConsumeQueue
from ..consumequeue.queue_table import QueueTable
from ..files.checkpoint import Checkpoint
from ..files.files import NO_ROOM, Files
from ..files.segments import SegmentFile, missing_before
from ..files.store_config import StoreConfig
from ..index.key_index import INDEX_BATCH_RECORDS, KeyIndex
from .dispatcher import EntryRules
from .queue_rebuild import ConsumeQueueRebuild

if TYPE_CHECKING:
    from ..commitlog.record_blocks import Block

from itertools import islice

from ..consumequeue.appended import has_keys
from ..consumequeue.consume_queue import QueueSpace
from ..files.checkpoint import save_checkpoint
from ..files.file_sync import sync_all

SMALL_BYTES = 2 << 20
TAIL_BYTES: Final = 8 << 20
_log = logging.getLogger(__name__)
_LOOK_BEHIND = 16


class LogSource(Struct, frozen=True):
    """The files of a log, and how strictly their records are checked."""

    segments: Sequence[SegmentFile]
    view_of: Callable[[SegmentFile], memoryview]
    checks_crc: bool = True
    demands_seals: bool = False

    @property
    def first(self) -> int:
        """Where the log begins."""
        return self.segments[0].base_offset

    def unchecked(self) -> "LogSource":
        """Return the same log, whose checksums were looked at before."""
        return LogSource(self.segments, self.view_of, checks_crc=False)

    def record_at(self, log_offset: int) -> Record | None:
        """Return the record at a position, ``None`` when no sound one begins there."""
        segment = next((one for one in self.segments if one.holds(log_offset)), None)
        if segment is None:
            return None
        view, position = self.view_of(segment), log_offset - segment.base_offset
        is_record = check_record(view, position, log_offset, checks_crc=self.checks_crc) > 0
        return decode_record(view, position) if is_record else None

    def walk(self) -> LogWalk:
        """Return a walk from record to record."""
        return LogWalk(self.segments, self.view_of, checks_crc=self.checks_crc, demands_seals=self.demands_seals)


class LogReplay:
    """One walk and where its records go: to the queues, and to the index behind ``index_end``."""

    def __init__(self, source: LogSource, rebuild: ConsumeQueueRebuild | None, index: KeyIndex | None) -> None:
        self.source = source
        self.rebuild = rebuild
        self.index = index
        self.index_end = index.end_log_offset if index is not None else sys.maxsize
        self.last_at_ms = 0
        self.last_offset = -1

    def run(self, start: int, end: int = sys.maxsize) -> Stop | None:
        """Walk from a record's position up to ``end``; return what ended the walk before that (raises ``OSError``)."""
        walk = self.source.walk()
        last: memoryview | None = None
        for log_offset, record in walk.walk_from(start):
            if log_offset >= end:
                return None
            if log_offset - start >= SMALL_BYTES:
                return self._run_in_blocks(log_offset, end)
            self._take(log_offset, record)
            self.last_offset, last = log_offset, record
        if last is not None:
            self.last_at_ms = decode_record(last).stored_at_ms
        return walk.stop

    def _take(self, log_offset: int, record: memoryview) -> None:
        is_indexed = log_offset <= self.index_end
        if is_indexed and (self.rebuild is None or self.rebuild.confirm(log_offset, record)):
            return
        appended = describe(record) if self.rebuild is None else self.rebuild.feed(record)
        if not is_indexed:
            self._add_to_index((appended,))

    def _run_in_blocks(self, start: int, end: int) -> Stop | None:
        from ..commitlog.record_blocks import BlockWalk

        source = self.source
        walk = BlockWalk(
            source.segments, source.view_of, checks_crc=source.checks_crc, demands_seals=source.demands_seals
        )
        for block in walk.blocks_from(start):
            taken = block.rows_before(end)
            if len(taken):
                self._take_block(taken)
            if len(taken) < len(block):
                return None
        return walk.stop

    def _take_block(self, block: "Block") -> None:
        from .block_dispatch import describe_block, rebuild_from_block

        self.last_at_ms = int(block.heads["stored_at_ms"][-1])
        self.last_offset = int(block.heads["log_offset"][-1])
        if self.rebuild is not None:
            rebuild_from_block(block, self.rebuild)
        if block.end > self.index_end:
            self._add_to_index(describe_block(block.rows_behind(self.index_end)))

    def _add_to_index(self, records: Sequence[Appended]) -> None:
        assert self.index is not None, "without an index no record lies behind its end"
        self.index.add(records)
        if self.index.waiting_records >= INDEX_BATCH_RECORDS:
            try:
                self.index.build()
            except OSError as error:
                if error.errno not in NO_ROOM:  # what has no room is kept, and built when there is
                    raise


class Recovered(NamedTuple):
    """What the store goes on from: the end of the log, the store time of its last record, where the walk began.

    ``last_offset`` is where the last record begins, -1 without one.
    """

    end: int
    last_stored_at_ms: int
    start: int = 0
    last_offset: int = -1


class Recovery:
    """One start of a store; ``run`` leaves log, queues and index ready for the next record."""

    def __init__(
        self, files: Files, config: StoreConfig, log: CommitLog, queues: QueueTable, index: KeyIndex | None
    ) -> None:
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
        for queue in (*self._queues, *self._queues.batches):
            self._queues.clear(queue)
        if self._index is not None:
            self._index.remove_from(0)
        self._log.set_bounds(0, 0)
        return Recovered(0, 0)

    def _walk(self, start: int, known_end: int) -> Recovered:
        rebuild = self._begin_rebuild(start)
        walk = LogReplay(self._source, rebuild, self._index)
        stop = walk.run(start)
        assert stop is not None, "a walk without an end to stop at ends at the log's"
        self._judge_end(stop, known_end, walk.last_at_ms)
        kept = cut_log(self._files, [*self._source.segments, *self.behind], stop.log_offset)
        self._log.set_bounds(self._source.first, stop.log_offset)
        if kept:
            self._source = replace(self._source, segments=kept)
        rebuild.finish(stop.log_offset)
        self._rebuild(rebuild)
        if self._index is not None and self._index.end_log_offset >= stop.log_offset:
            self._index.restore(-1, stop.log_offset)
            index_before(self._index, self._source, stop.log_offset)
        return Recovered(stop.log_offset, walk.last_at_ms, start, walk.last_offset)

    def _begin_rebuild(self, start: int) -> ConsumeQueueRebuild:
        rebuild = ConsumeQueueRebuild(self._queues, self._rules, start, is_whole_log=start == self._source.first)
        for queue in (*self._queues.broken, *self._queues.batches.broken):
            _log.warning("consume queue %s is damaged, rebuilding it from the log", queue.directory)
            self._queues.clear(queue)
        if start != self._source.first:
            rebuild.skip(self._queues.broken)
            rebuild.batches.skip(self._queues.batches.broken)
        return rebuild

    def _rebuild(self, walked: ConsumeQueueRebuild) -> None:
        """Write the queues anew which the walk found to lack entries of records before its start."""
        broken, broken_batches = walked.broken, walked.batches.broken
        if not broken and not broken_batches:
            return
        for queue in sorted((*broken, *broken_batches), key=lambda queue: queue.directory):
            _log.warning("consume queue %s lacks records of the log, rebuilding it from the log", queue.directory)
            self._queues.clear(queue)
        rebuild = ConsumeQueueRebuild(self._queues, self._rules, self._source.first, is_whole_log=True)
        rebuild.limit_to(broken)
        rebuild.batches.limit_to(broken_batches)
        stop = LogReplay(self._source.unchecked(), rebuild, None).run(self._source.first, self._log.max_offset)
        if stop is not None and stop.log_offset < self._log.max_offset:
            raise self._damaged(stop)
        rebuild.finish(self._log.max_offset)

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


def prepare_index(index: KeyIndex, source: LogSource, start: int, sure_at_ms: int | None) -> None:
    """Drop what cannot be trusted; ``sure_at_ms`` is ``None`` after a clean stop (raises ``OSError``).

    What lies behind ``start`` is cheap to write anew, since the log is walked from there.
    """
    if sure_at_ms is not None:
        index.restore(sure_at_ms)
    if not _ends_at_record(index, source):
        _log.warning("index points to log offset %d, which holds no record, truncating it", index.end_log_offset)
        index.restore(-1, start)
    if not _ends_at_record(index, source) or _lacks_file(index, source):
        index.remove_from(0)


def index_before(index: KeyIndex, source: LogSource, start: int) -> Stop | None:
    """Add the records before ``start`` that the index lacks; return where the log is damaged before that."""
    begin = max(index.end_log_offset, source.first)
    return LogReplay(source.unchecked(), None, index).run(begin, start) if begin < start else None


def _ends_at_record(index: KeyIndex, source: LogSource) -> bool:
    return index.end_log_offset < source.first or source.record_at(index.end_log_offset) is not None


def _lacks_file(index: KeyIndex, source: LogSource) -> bool:
    """Tell whether a record with keys, soon behind the end of a file, lies before the next one begins."""
    end = source.first - 1
    for file in index.files:
        walk = source.unchecked().walk().walk_from(max(end, source.first))
        for log_offset, record in islice(walk, _LOOK_BEHIND):
            if log_offset >= file.begin_log_offset:
                break
            if log_offset > end and has_keys(describe(record)):
                _log.warning("index lacks records before %s, rebuilding it from the log", file.path)
                return True
        end = file.end_log_offset
    return False


def sync_recovered_log(files: Files, log: CommitLog, start: int, directories: Sequence[str]) -> None:
    """Bring the files of the log from a position on, and all names, to the disk (raises ``OSError``)."""
    first = max(log.min_offset, start) // log.file_bytes * log.file_bytes
    paths = [log.paths.path_of(base) for base in range(first, log.max_offset, log.file_bytes)]
    sync_all(files, paths, directories)


def sync_recovered_queues(space: QueueSpace) -> None:
    """Bring the queue files that recovery has written to the disk (raises ``OSError``)."""
    sync_all(space.files, list(space.dirty_paths), sorted(space.new_directories))
    space.dirty_paths.clear()
    space.new_directories.clear()


def mark_unsynced(queues: Iterable[ConsumeQueue], start: int) -> None:
    """Have the files flushed that hold entries of records from the log position on."""
    for queue in queues:
        last = queue.entry(queue.max_offset - 1) if queue.max_offset else None
        if last is not None and last[0] >= start:
            queue.mark_written_from(queue.first_at(start, queue.file_start(queue.min_offset), queue.max_offset))


def checkpoint_after_recovery(
    found: Checkpoint, recovered: Recovered, now_ms: int, *, are_queues_settled: bool
) -> Checkpoint:
    """Return what is true of a store whose log is on disk."""
    newest_at_ms = recovered.last_stored_at_ms
    log_at_ms = newest_at_ms if 0 < newest_at_ms < now_ms else (newest_at_ms or now_ms) - 1
    queues_at_ms = log_at_ms if are_queues_settled else min(found.queues_at_ms, log_at_ms)
    index_at_ms = min(found.index_at_ms, log_at_ms)  # the log may have lost its end
    return found._replace(log_at_ms=log_at_ms, queues_at_ms=queues_at_ms, index_at_ms=index_at_ms)


def save_if_changed(files: Files, path: str, found: Checkpoint, checkpoint: Checkpoint) -> None:
    """Write the file unless it says so already (raises ``OSError``); the caller makes its name durable."""
    if checkpoint != found or not files.exists(path):
        save_checkpoint(files, path, checkpoint)
