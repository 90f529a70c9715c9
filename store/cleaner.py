"""How full the disks are, which files of a store may go, when, and how the rest learns of it (store.md §8).

    round    disk figures -> log files -> queues and index behind the log, if it has lost files since the last time

Rules (``CleanCommitLogService``, ``CleanConsumeQueueService``):

- Log files go from the first on, in the hours of ``deleteWhen``, when the disk rule says so, or for some rounds after
  ``ask``. A file goes when its last write, by its mtime, is ``fileReservedTime`` ago, or at once when the disk is past
  the forced level. The first one that may not go ends it: with the clock set back, or an mtime in the future, later.
- The last file never goes, nor one that is not flushed or not yet in its queues. Queues are flushed before: after a
  power loss their numbering cannot be counted anew from records that are gone.
- Queues lose the leading files whose last entry lies before the log, never the last one, so that the numbering goes
  on; index files go likewise. Queues that have lost all records are removed on demand only (``expired_queues``).
- The plan is made on the thread that owns the store, in small pieces; what waits for the disk is handed out as a
  ``SlowStep`` and may run in another thread before the next is asked for. First the store forgets a file, then it is
  removed: who reads has either the file or a clear answer. Readers that still hold a slice of it keep its room.
- Queues follow only when the names of the deleted log files are gone for certain: after a power loss the log never
  holds records that its queues have dropped.
- After a crash anywhere in between, the first round goes through all queues and the index again.

What follows from how full the disks are (``CleanCommitLogService.isSpaceToDelete``; store.md §8.2):

    percent in use of the log's path (the least full of several), then of the queues' path
    > warning level    the store takes no messages, files go before their time
    > forced level     files go before their time; a path above it gets no new log files
    > max used         expired files go at any hour
    else               messages are taken again; only the log's path at or below the forced level ends a full disk

Percentages are rounded up, and counted against what an ordinary user may fill. A path that is not there yet is measured
where it will be made; one that cannot be measured counts as -1, which cleans by time at any hour.
"""

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from itertools import islice
from typing import NamedTuple

from ..common.errors import DiskFullError, StoreNotWritableError
from .consumequeue.batch_queue import BatchQueue
from .consumequeue.consume_queue import ConsumeQueue, HeadView, QueueTrim, find_cut, view_head
from .files.file_sync import FileRemoval, SlowStep
from .files.files import Files
from .files.store_config import CleaningConfig, StoreConfig
from .recovery.flusher import FileWork
from .store_parts import StoreParts

UNKNOWN = -1
_ASKED_ROUNDS = 20
_QUEUES_PER_STEP = 64
_log = logging.getLogger(__name__)
AnyQueue = ConsumeQueue | BatchQueue


class DiskUse(NamedTuple):
    """Percentages in use: of each log path, of the queues' path and of the index's path."""

    log: Mapping[str, int]
    queues: int
    keys: int

    @property
    def least_log(self) -> int:
        """The percentage of the log path that is the least full."""
        return min(self.log.values())

    def remark(self) -> str:
        """Return the words that stand in Java's answer to a send (``SendMessageProcessor.diskUtil``)."""
        log, queues, index = self.least_log / 100, self.queues / 100, self.keys / 100
        return f"CL: {log:5.2f} CQ: {queues:5.2f} INDEX: {index:5.2f}"


class DiskReport(NamedTuple):
    """Percentages in use, and the bytes of the disk behind the store directory, which are 0 when nobody can tell."""

    use: DiskUse
    total: int
    free: int


class DiskVerdict(NamedTuple):
    """What the figures mean; ``is_full`` is ``None`` when they leave it as it was."""

    is_full: bool | None
    is_forced: bool
    exceeds_limit: bool
    full_paths: frozenset[str]


def measure_use(files: Files, path: str) -> int:
    """Return how many percent of the disk behind the path are in use, rounded up; waits for the disk."""
    while not files.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    try:
        used, usable = files.disk_usage(path)
    except OSError:
        return UNKNOWN
    return -(-used * 100 // (used + usable)) if used + usable else UNKNOWN


def measure_capacity(files: Files, path: str) -> tuple[int, int]:
    """Return the bytes of the disk behind the path, and those not in use; waits for the disk."""
    try:
        return files.disk_capacity(path)
    except OSError:
        return 0, 0


def judge_use(use: DiskUse, config: CleaningConfig) -> DiskVerdict:
    """Return what the figures mean, with Java's order of the checks."""
    full_paths = frozenset(path for path, percent in use.log.items() if percent > config.forced_percent)
    is_full: bool | None = None
    for percent in (use.least_log, use.queues):
        if percent > config.warning_percent:
            return DiskVerdict(True, True, True, full_paths)
        if percent > config.forced_percent:
            return DiskVerdict(is_full, True, True, full_paths)
        is_full = False
    exceeds = any(not 0 <= percent <= config.max_used_percent for percent in (use.least_log, use.queues))
    return DiskVerdict(is_full, False, exceeds, full_paths)


class Cleaner:
    """Cleans one store; ``set_full`` is told why no message may be taken, and ``None`` when it may again."""

    def __init__(
        self,
        config: StoreConfig,
        parts: StoreParts,
        now_ms: Callable[[], int],
        set_full: Callable[[DiskFullError | None], None],
    ) -> None:
        self._config = config
        self._parts = parts
        self._now_ms = now_ms
        self._asked_rounds = 0
        self._cleaned_to = 0
        self._failed_at_ms: int | None = None
        self._is_short = False
        self._set_full = set_full
        self._is_full = False

    def __repr__(self) -> str:
        return f"<Cleaner of {self._config.root}{', disk full' if self._is_full else ''}>"

    def reconfigure(self, config: StoreConfig) -> None:
        """Use other settings of retention from now on."""
        self._config = config

    @property
    def period_ms(self) -> int:
        """The pause between rounds."""
        return self._config.cleaning.period_ms

    @property
    def _settings(self) -> CleaningConfig:
        return self._config.cleaning

    def ask(self) -> None:
        """Let expired files go in the next rounds, at any hour (``executeDeleteFilesManually``)."""
        self._asked_rounds = _ASKED_ROUNDS

    def round(self) -> Iterator[SlowStep]:
        """Yield the slow steps of one round, each to be run before the next is asked for."""
        figures: list[DiskUse] = []
        yield SlowStep(lambda: figures.append(self._measure()))
        verdict = self._judge(figures[0])
        yield from self._clean_log(verdict)
        log_min_offset = self._parts.log.min_offset
        if log_min_offset > self._cleaned_to and self._failed_at_ms is None:
            yield from self._clean_queues(log_min_offset)
            yield from self._clean_index(log_min_offset)
            self._cleaned_to = log_min_offset

    # --- disks

    def report(self) -> DiskReport:
        """Return how full the disks are; waits for them, may run in any thread."""
        return DiskReport(self._measure(), *measure_capacity(self._parts.files, self._config.root))

    def _measure(self) -> DiskUse:
        files, root = self._parts.files, self._config.root
        log = {path: measure_use(files, path) for path in self._config.log_directories}
        return DiskUse(log, measure_use(files, f"{root}/consumequeue"), measure_use(files, f"{root}/index"))

    def _judge(self, use: DiskUse) -> DiskVerdict:
        verdict = judge_use(use, self._settings)
        self._parts.log.paths.full = verdict.full_paths
        if verdict.is_full is not None:
            self._set_full(DiskFullError(f"the broker's disk is full [{use.remark()}]") if verdict.is_full else None)
            if verdict.is_full != self._is_full:
                say = _log.error if verdict.is_full else _log.info
                state = "is full" if verdict.is_full else "has room again"
                say("the disk of store %s %s: %s", self._config.root, state, use.remark())
            self._is_full = verdict.is_full
        return verdict

    # --- the log

    def _clean_log(self, verdict: DiskVerdict) -> Iterator[SlowStep]:
        is_asked, now_ms = self._asked_rounds > 0, self._now_ms()
        self._asked_rounds -= is_asked
        if not (verdict.exceeds_limit or is_asked or self._is_hour(now_ms)) or self._is_paused(now_ms):
            return
        paths = self._candidates()
        if not (verdict.is_forced and self._settings.cleans_forcibly):
            expired: list[str] = []
            yield SlowStep(partial(self._find_expired, paths, now_ms, expired))
            paths = expired
        is_short = verdict.exceeds_limit and not paths
        if is_short and not self._is_short:
            _log.warning("disk of store %s is filling up, and no log file has expired yet", self._config.root)
        self._is_short = is_short
        if paths:
            yield from self._flush_queues()
        for path in paths:
            if self._failed_at_ms is not None:
                return
            yield from self._remove_first(path)

    def _flush_queues(self) -> Iterator[SlowStep]:
        space = self._parts.queue_space
        work = FileWork(list(space.dirty_paths), sorted(space.new_directories))
        if not work.is_empty:
            yield SlowStep(partial(self._flush, work))

    def _flush(self, work: FileWork) -> None:
        try:
            self._parts.flusher.flush_files(work)
        except StoreNotWritableError as error:
            self._failed_at_ms = self._now_ms()
            _log.error("deleting no log file: flushing the consume queues failed: %s", error)

    def _find_expired(self, paths: list[str], now_ms: int, expired: list[str]) -> None:
        try:
            for path in paths:
                if self._parts.files.modified_at_ms(path) + self._settings.reserved_ms > now_ms:
                    return
                expired.append(path)
        except OSError as error:
            _log.warning(
                "the age of a log file cannot be read, deleting only the %d before it: %s", len(expired), error
            )

    def _is_hour(self, now_ms: int) -> bool:
        return datetime.fromtimestamp(now_ms / 1000).astimezone().hour in self._settings.hours

    def _is_paused(self, now_ms: int) -> bool:
        """Tell whether a file could not be deleted lately; a clock that was set back ends the pause."""
        failed_at_ms, self._failed_at_ms = self._failed_at_ms, None
        if failed_at_ms is not None and 0 <= now_ms - failed_at_ms < self._settings.retry_ms:
            self._failed_at_ms = failed_at_ms
        return self._failed_at_ms is not None

    def _candidates(self) -> list[str]:
        """Return the first files that are flushed and in their queues."""
        sure = min(self._parts.flusher.flushed.log_offset, self._parts.dispatcher.dispatched_offset)
        return self._parts.log.removable_files(sure, self._settings.most_files)

    def _remove_first(self, path: str) -> Iterator[SlowStep]:
        log = self._parts.log
        removal = FileRemoval(self._parts.files, [log.drop_first()])
        yield SlowStep(removal.run, self._settings.log_pause_ms)
        if removal.error is not None:
            self._failed_at_ms = self._now_ms()
            _log.error("cannot delete %s, retrying with the next cleaning: %s", path, removal.error)
        if removal.removed:
            _log.info("deleted %s, the log begins at %d", path, log.min_offset)
        else:
            log.keep_first(path)

    # --- queues and index

    def _clean_queues(self, log_min_offset: int) -> Iterator[SlowStep]:
        for views in self._slices(self._queues()):
            cuts: list[QueueTrim | None] = []
            yield SlowStep(partial(self._find_cuts, views, log_min_offset, cuts))
            for (queue, view), cut in zip(views, cuts, strict=True):
                paths = self._apply(queue, view, cut) if cut is not None else []
                if paths:
                    yield from self._remove_behind(paths, self._settings.queue_pause_ms)

    def _clean_index(self, log_min_offset: int) -> Iterator[SlowStep]:
        index = self._parts.index
        while index is not None and (path := index.drop_first(log_min_offset)) is not None:
            yield from self._remove_behind([path])

    def _remove_behind(self, paths: list[str], pause_ms: int = 0) -> Iterator[SlowStep]:
        """Remove files that the store has forgotten; after a start it knows those that are left."""
        removal = FileRemoval(self._parts.files, paths)
        yield SlowStep(removal.run, pause_ms)
        if removal.error is not None:
            _log.warning("cannot delete %s, retrying after the next start: %s", paths[0], removal.error)

    def expired_queues(self, keeps: Callable[[str], bool]) -> Iterator[SlowStep]:
        """Yield steps that remove the queues without any record left, but those of topics to keep (``cleanExpired``).

        Their numbering begins anew.
        """
        log_min_offset = self._parts.log.min_offset
        for views in self._slices(queue for queue in self._queues() if not keeps(queue.topic)):
            cuts: list[QueueTrim | None] = []
            yield SlowStep(partial(self._find_cuts, views, log_min_offset, cuts))
            for (queue, view), cut in zip(views, cuts, strict=True):
                is_as_seen = _slots(queue).max_offset == view.max_offset
                if cut is not None and cut.last_log_offset < log_min_offset and is_as_seen:
                    yield from self._remove_queue(queue)

    def unused_topics(self, keeps: Callable[[str], bool]) -> Iterator[SlowStep]:
        """Yield steps that remove all queues of topics, but those to keep (``cleanUnusedTopic``)."""
        for queue in self._queues():
            if not keeps(queue.topic):
                yield from self._remove_queue(queue)

    def _queues(self) -> list[AnyQueue]:
        queues = self._parts.queues
        return [*queues, *queues.batches]

    def _slices(self, queues: Iterable[AnyQueue]) -> Iterator[list[tuple[AnyQueue, HeadView]]]:
        rest = iter(queues)
        while views := [(queue, view_head(_slots(queue))) for queue in islice(rest, _QUEUES_PER_STEP)]:
            yield views

    def _find_cuts(
        self, views: list[tuple[AnyQueue, HeadView]], log_min_offset: int, cuts: list[QueueTrim | None]
    ) -> None:
        cuts += [find_cut(self._parts.files, view, log_min_offset) for _, view in views]

    def _apply(self, queue: AnyQueue, view: HeadView, cut: QueueTrim) -> list[str]:
        slots = _slots(queue)
        if slots.first_base != view.first_base or slots.max_offset < view.max_offset:  # it was removed meanwhile
            return []
        paths = slots.drop_head(cut.first_base, cut.min_offset)
        if isinstance(queue, BatchQueue):
            queue.correct_min_offset(self._parts.log.min_offset)
        return paths

    def _is_there(self, queue: AnyQueue) -> bool:
        return self._parts.queues.get(queue.topic, queue.queue_id) is queue

    def _remove_queue(self, queue: AnyQueue) -> Iterator[SlowStep]:
        """Remove a queue, unless messages are on their way to it; meanwhile none can be sent there."""
        if not self._is_there(queue) or queue.next_offset != queue.max_offset:
            return
        queues, slots = self._parts.queues, _slots(queue)
        queues.leave(queue)
        last_base = slots.last_base
        paths = slots.drop_head(last_base + slots.file_entries * slots.unit_bytes, 0) if slots.paths() else []
        removal = FileRemoval(self._parts.files, paths, [queue.directory, os.path.dirname(queue.directory)])
        yield SlowStep(removal.run)
        if removal.removed < len(paths):
            _log.error("cannot delete consume queue %s, keeping it: %s", queue.directory, removal.error)
            slots.take_back(paths[removal.removed :])
            queue.correct_min_offset(self._parts.log.min_offset)
            queues.stay(queue)
        else:
            queues.leaving.discard((queue.topic, queue.queue_id))
            _log.info("deleted consume queue %s, none of its records is left", queue.directory)


def _slots(queue: AnyQueue) -> ConsumeQueue:
    return queue.slots if isinstance(queue, BatchQueue) else queue
