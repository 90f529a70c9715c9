"""Reads a whole store directory and says what is wrong with it; writes nothing.

    log: every record -> its queue entry, its batch unit, its index entries -> what is left over in queues and index

Rules:

- The log is walked once; queues and index are read along with it, so that memory stays bounded.
- A broker may be writing: ``abort`` says so, or that one was killed. Then queues and index that lag behind the log, a
  torn tail, and what points behind the end of the log are notes, since the next start puts them right.
- ``lock`` is never opened: closing it would take the lock from a broker in this process.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Final

from msgspec.structs import replace

from ...common.errors import ConfigError, StoreError
from ...common.names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic
from ..files.checkpoint import load_checkpoint
from ..files.files import OS_FILES, Files
from ..files.segments import SegmentFile
from ..files.store_config import (
    BATCH_KEY,
    BATCH_UNIT_BYTES,
    ENTRY_BYTES,
    QUEUE_KEY,
    SEGMENT_KEY,
    TIMER_LOG_KEY,
    StoreConfig,
)
from ..files.store_lock import refuse_unknown_formats
from .audit_report import AuditReport, ReadFiles, check_sizes, find_files, log_file_size, usual_size
from .block_keys import BlockKeys, name_topics
from .index_audit import IndexAudit, find_index_files
from .log_audit import LogAudit
from .queue_audit import AuditedBatchQueue, AuditedQueue, BatchAudit, QueueAudit
from .small_files_audit import TimerAudit, audit_checkpoint, audit_config, audit_ext

_DIRECTORIES: Final = frozenset({"commitlog", "consumequeue", "index"})
_LIGHT_PREFIX: Final = "%LMQ%"  # entries of records of other topics (store.md §2.9)
_SIZE_FIELDS: Final = {
    SEGMENT_KEY: "segment_bytes",
    QUEUE_KEY: "queue_file_bytes",
    BATCH_KEY: "batch_file_bytes",
}

Advance = Callable[[int], None]


class StoreAudit:
    """One audit; ``size_bytes`` is what ``run`` reports as progress in all.

    ``sizes`` are the keys of the sizes that the settings name; others are taken from the files, and ``found_config``
    has them all.
    """

    def __init__(self, config: StoreConfig, sizes: frozenset[str] = frozenset(), files: Files = OS_FILES) -> None:
        self._config = config
        self._sizes = sizes
        self._files = files
        self._reader = ReadFiles(files)
        self.report = AuditReport(config.root)
        self.advance: Advance = lambda _: None
        self.found_config = config
        with _translated(config.root):
            self._check_is_store()
            refuse_unknown_formats(files, config.root)
            self.report.is_open = files.exists(f"{config.root}/abort")
            self._segments = self._find_segments()
            self._timers = self._find_timers()
        self.size_bytes = sum(segment.size for segment in self._segments)

    def __repr__(self) -> str:
        return f"<StoreAudit {self._config.root}>"

    def run(self) -> AuditReport:
        """Read everything.

        Raises:
            ConfigError: The sizes in the settings cannot be those of the files.
            StoreError: A file cannot be read.
        """
        with _translated(self._config.root):
            try:
                self._run()
            finally:
                self._reader.close()
        return self.report

    def _run(self) -> None:
        report, config = self.report, self._config
        checkpoint = load_checkpoint(self._files, f"{config.root}/checkpoint")
        log = LogAudit(
            self._files, self._segments, report, sure_at_ms=checkpoint.log_at_ms, needs_seal=config.demands_seals
        )
        log.advance = self.advance
        topics = _Topics(audit_config(self._reader, config.root, report))
        queues = self._queue_audit(log)
        batches = self._batch_audit(log, topics)
        files = find_index_files(self._reader, f"{config.root}/index", config, report) if config.has_index else []
        index = IndexAudit(files, log)
        for block in log.blocks():
            named = name_topics(block)
            keys = BlockKeys(block, named, config.delays_ms)
            queues.compare(block, keys, named, batches.topics)
            batches.compare(block, keys, named)
            index.compare(block, keys)
        report.end = log.end
        queues.finish(topics)
        batches.finish()
        index.finish()
        audit_checkpoint(self._reader, config.root, log.last_at_ms, report)
        audit_ext(self._reader, config.root, report)
        self._timers.run(self._sizes)
        self._add_notes(index)

    def _check_is_store(self) -> None:
        root = self._config.root
        if not self._files.exists(root):
            raise ConfigError(f"{root} is not a store: it does not exist")
        names = {entry.name for entry in self._files.list(root) if entry.is_directory}
        if not names & _DIRECTORIES and not any(map(self._files.exists, self._config.all_log_directories)):
            raise ConfigError(f"{root} is not a store: it has no directory commitlog")

    def _find_segments(self) -> list[SegmentFile]:
        found = find_files(self._files, self._config.all_log_directories, self.report, "log")
        size = self._size(SEGMENT_KEY, self._config.segment_bytes, found, log_file_size(found))
        return check_sizes(found, size, self.report, "log") if found else []

    def _find_timers(self) -> TimerAudit:
        audit = TimerAudit(self._reader, self._config, self.report, self._segments)
        if TIMER_LOG_KEY not in self._sizes and audit.file_bytes:
            timers = replace(self.found_config.timers, file_bytes=audit.file_bytes)
            self.found_config = replace(self.found_config, timers=timers)
        return audit

    def _size(self, key: str, configured: int, found: list[SegmentFile], usual: int) -> int:
        if key not in self._sizes and usual:
            self.found_config = replace(self.found_config, **{_SIZE_FIELDS[key]: usual})
            return usual
        if usual not in (0, configured) and all(one.size == usual for one in found):
            raise ConfigError(f"{found[0].path} has {usual} bytes, {key} is {configured}", key=key)
        return configured

    def _queue_audit(self, log: LogAudit) -> QueueAudit:
        audit = QueueAudit(self._reader, log)
        audit.root = f"{self._config.root}/consumequeue"
        places = list(self._queue_places(audit.root))
        found = {place: find_files(self._files, [place[0]], self.report, "queue") for place in places}
        every = [file for files in found.values() for file in files]
        size = self._size(QUEUE_KEY, self._config.queue_file_bytes, every, usual_size(every))
        for (directory, topic, queue_id), files in found.items():
            if topic.startswith(_LIGHT_PREFIX):
                self.report.counts["light queues, not compared"] += 1
                continue
            queue = AuditedQueue(directory, topic, queue_id)
            kept = check_sizes(files, size, self.report, "queue")
            queue.bases, queue.file_bytes = [file.base_offset for file in kept], size
            steps = range(queue.bases[0], queue.bases[-1] + 1, size) if kept and size % ENTRY_BYTES == 0 else ()
            queue.is_usable = list(steps) == queue.bases and all(file.size == size for file in kept)
            audit.add(queue)
        return audit

    def _batch_audit(self, log: LogAudit, topics: "_Topics") -> BatchAudit:
        audit = BatchAudit(log)
        places = list(self._queue_places(f"{self._config.root}/batchconsumequeue"))
        found = {place: find_files(self._files, [place[0]], self.report, "batch queue") for place in places}
        every = [file for files in found.values() for file in files]
        size = self._size(BATCH_KEY, self._config.batch_file_bytes, every, usual_size(every))
        for (directory, topic, queue_id), files in found.items():
            kept = check_sizes(files, size, self.report, "batch queue") if size % BATCH_UNIT_BYTES == 0 else []
            audit.add(topic, queue_id, AuditedBatchQueue(self._reader, directory, kept))
        audit.topics |= topics.batch
        return audit

    def _queue_places(self, root: str) -> Iterator[tuple[str, str, int]]:
        for topic in self._files.list(root):
            if not topic.is_directory:
                self.report.notes.append(f"{root}/{topic.name} is no queue")
                continue
            for queue in self._files.list(f"{root}/{topic.name}"):
                if queue.is_directory and queue.name.isascii() and queue.name.isdigit():
                    yield f"{root}/{topic.name}/{queue.name}", topic.name, int(queue.name)
                else:
                    self.report.notes.append(f"{root}/{topic.name}/{queue.name} is no queue")

    def _add_notes(self, index: IndexAudit) -> None:
        if self.report.is_open:
            self.report.notes.insert(0, "abort is there: a broker has the store open, or was killed")
        if not self._segments:
            self.report.notes.append("the log has no file: it never had one, or all of them are lost")
        if not index.is_there and self._config.has_index and self.report.counts["records"]:
            self.report.notes.append("there is no index")


class _Topics:
    """What ``topics.json`` says; ``None`` when it says nothing."""

    def __init__(self, known: dict[str, bool] | None) -> None:
        self._known = known
        self.batch = {topic for topic, is_batch in (known or {}).items() if is_batch}

    def may_lack_queues(self, topic: str) -> bool:
        """Tell whether a topic was deleted, so that its records have no entries."""
        is_internal = is_system_topic(topic) or topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
        return self._known is not None and topic not in self._known and not is_internal


@contextmanager
def _translated(root: str) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"{error.filename or root} cannot be read: {error.strerror}") from error
