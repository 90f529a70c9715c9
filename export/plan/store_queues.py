"""The consume queues of a store that is only read: which entries are believed, and how far they know the log.

    consumequeue/TOPIC/QUEUE ID/20 digits         entries of 20 bytes
    batchconsumequeue/TOPIC/QUEUE ID/20 digits    units of 46 bytes, which begin alike

Rules of one queue (store.md §3.1, §3.8, §3.9):

- A directory is understood when its files follow each other and are of one size; the last may be short. Else, and
  without a file, nothing is known of the queue.
- Entries end at the first that is none, or that lies before its predecessor or behind the end of the log: the Java
  broker leaves what it cut off where it is. Entries behind zeros are damage, and nothing is known.
- A queue that begins at offset 0 knows all of its records; another one only those from its first entry on.

Rules of a store:

- Of a store that was cleanly closed, queues know the log up to the last record that any of them names. Of another one
  they know what was stored before the times of the checkpoint, less a margin for what was not flushed: Java raises the
  time of the queues before their files are flushed, which may take a minute.
- Where the first record of a log file is not in its queue, queues know nothing from the end of that queue on: they are
  a copy of another age, or the store keeps its queues elsewhere now.
- A topic's queues are those of ``config/topics.json``. When one of them has no files, nobody knows whether it had none
  or lost them, and nothing is known of the topic.
- What a broker dropped, it knows no more: of a topic that was deleted and made again, only what came after.
"""

import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Final

import msgspec
import numpy as np

from ...common.errors import JsonError
from ...common.java_json import read_json_as
from ...common.names import is_system_topic
from ...common.record import Record
from ...store.commitlog.record_blocks import Longs, Structs
from ...store.consumequeue.consume_queue import PRE_BLANK_SIZE
from ...store.files.checkpoint import Checkpoint, load_checkpoint
from ...store.files.files import OS_FILES, check_map, written_end
from ...store.files.segments import segment_path
from ...store.files.store_config import BATCH_UNIT_BYTES, ENTRY_BYTES
from .filesystems import list_names
from .split import PlannedLog, is_in_queue

_NAME_DIGITS: Final = 20
_ENTRY: Final = struct.Struct(">qi")
_FIELDS: Final = [("log_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")]
ENTRY_TYPES: Final = {
    ENTRY_BYTES: np.dtype(_FIELDS),
    BATCH_UNIT_BYTES: np.dtype(
        [*_FIELDS, ("stored_at_ms", ">i8"), ("first_offset", ">i8"), ("messages", ">i2"), ("rest", "V8")]
    ),
}
QUEUES: Final = "consumequeue"
BATCH_QUEUES: Final = "batchconsumequeue"
UNIT_BYTES: Final = {QUEUES: ENTRY_BYTES, BATCH_QUEUES: BATCH_UNIT_BYTES}


@dataclass(frozen=True)
class QueueFiles:
    """The files of a queue; slots count its entries, ``first <= slot < stop`` are believed. Travels to tasks."""

    topic: str
    queue_id: int
    directory: str
    unit_bytes: int
    file_bytes: int
    first: int
    stop: int

    @property
    def is_batch(self) -> bool:
        """Whether the units are those of a batch queue."""
        return self.unit_bytes == BATCH_UNIT_BYTES

    def read(self, first: int, stop: int) -> Structs | None:
        """Return the entries of some slots, ``None`` when the files are not as they were."""
        parts: list[Structs] = []
        while first < stop:
            position = first * self.unit_bytes
            base = position - position % self.file_bytes
            count = min(stop - first, (base + self.file_bytes - position) // self.unit_bytes)
            part = _read(segment_path(self.directory, base), self.unit_bytes, position - base, count)
            if part is None or len(part) != count:
                return None
            parts.append(part)
            first += count
        return np.concatenate(parts) if parts else np.empty(0, ENTRY_TYPES[self.unit_bytes])


class QueueView:
    """A queue whose files are mapped while it is searched."""

    def __init__(self, files: QueueFiles) -> None:
        self.files = files
        self._maps: dict[int, memoryview] = {}

    @cached_property
    def sure_from(self) -> int | None:
        """The log offset from which on the queue knows all of its records; ``None`` if it does not say."""
        if self.files.first == 0:
            return 0
        return self.log_offset(self.files.first) if self.files.first < self.files.stop else None

    @cached_property
    def end_offset(self) -> int:
        """The queue offset behind the last message."""
        if not self.files.is_batch or not self.files.stop:
            return self.files.stop
        last = self.files.read(self.files.stop - 1, self.files.stop)
        return 0 if last is None else int(last["first_offset"][0]) + int(last["messages"][0])

    def log_offset(self, slot: int) -> int:
        """Return where the record of a slot begins."""
        return self._entry(slot)[0]

    def record_end(self, slot: int) -> int:
        """Return where the record of a slot ends."""
        at, size = self._entry(slot)
        return at + size

    def first_at(self, log_offset: int, low: int | None = None) -> int:
        """Return the first slot whose record begins at or behind a place of the log."""
        low, high = self.files.first if low is None else low, self.files.stop
        while low < high:
            middle = (low + high) // 2
            if self.log_offset(middle) >= log_offset:
                high = middle
            else:
                low = middle + 1
        return low

    def _entry(self, slot: int) -> tuple[int, int]:
        position = slot * self.files.unit_bytes
        base = position - position % self.files.file_bytes
        if base not in self._maps:
            path = segment_path(self.files.directory, base)
            self._maps[base] = OS_FILES.map_written(path, os.stat(path).st_size)
        check_map(self._maps[base])
        at, size = _ENTRY.unpack_from(self._maps[base], position - base)
        return at, size


def open_queue(home: str, topic: str, queue_id: int, log_end: int) -> QueueFiles | None:
    """Return a queue of a store, ``None`` when it is missing or not understood."""
    for kind, unit_bytes in UNIT_BYTES.items():
        directory = os.path.join(home, kind, topic, str(queue_id))
        try:
            with os.scandir(directory) as entries:
                found = sorted((int(one.name), one.stat().st_size) for one in entries if _is_name(one.name))
        except FileNotFoundError:
            continue
        except OSError:
            return None
        extent = _understand(directory, unit_bytes, found, log_end)
        return None if extent is None else QueueFiles(topic, queue_id, directory, unit_bytes, *extent)
    return None


def _is_name(name: str) -> bool:
    return len(name) == _NAME_DIGITS and name.isascii() and name.isdigit()


def _understand(
    directory: str, unit_bytes: int, found: list[tuple[int, int]], log_end: int
) -> tuple[int, int, int] | None:
    """Return the size of the files, the first slot that is believed and the one behind the last; or ``None``."""
    if not found:
        return None
    first_base, file_bytes = found[0]
    bases = [first_base + number * file_bytes for number in range(len(found))]
    is_even = all(size == file_bytes for _, size in found[:-1]) and found[-1][1] <= file_bytes
    if not is_even or not file_bytes or file_bytes % unit_bytes or [base for base, _ in found] != bases:
        return None
    first = stop = first_base // unit_bytes
    for base, size in reversed(found):
        entries = _read_written(segment_path(directory, base), unit_bytes, size)
        count = None if entries is None else _believed(entries, log_end)
        if count is None:
            return None
        if count:
            stop = base // unit_bytes + count
            break
    if stop > first:
        count = min(stop - first, file_bytes // unit_bytes)
        blanks = _blanks(segment_path(directory, first_base), unit_bytes, count)
        if blanks is None:
            return None
        first += blanks
    return file_bytes, first, stop


def _blanks(path: str, unit_bytes: int, count: int) -> int | None:
    """Return how many entries a file begins with that only fill it up, ``None`` where it has no others."""
    entries = _read(path, unit_bytes, 0, count)
    if entries is None or (entries["size"] == PRE_BLANK_SIZE).all():
        return None
    return int(np.argmax(entries["size"] != PRE_BLANK_SIZE))


def _believed(entries: Structs, log_end: int) -> int | None:
    """Return how many of the first entries are such, in the order of the log; ``None`` if more follow behind zeros."""
    at, sizes = entries["log_offset"].astype(np.int64), entries["size"].astype(np.int64)
    is_blank = sizes == PRE_BLANK_SIZE
    good = (sizes > 0) & (at >= 0) & (is_blank | (at + sizes <= log_end))
    good[1:] &= is_blank[:-1] | (at[1:] > at[:-1])
    if good.all():
        return len(good)
    count = int(np.argmin(good))
    return None if not sizes[count] and sizes[count:].any() else count


def _read(path: str, unit_bytes: int, position: int, count: int) -> Structs | None:
    try:
        return np.fromfile(path, ENTRY_TYPES[unit_bytes], count, offset=position)
    except OSError:
        return None


def _read_written(path: str, unit_bytes: int, size: int) -> Structs | None:
    """Return the entries of a file without the hole behind them, which most of a queue of few messages is."""
    try:
        descriptor = OS_FILES.open(path)
    except OSError:
        return None
    try:
        return _read(path, unit_bytes, 0, -(-written_end(descriptor, size) // unit_bytes))
    finally:
        OS_FILES.close(descriptor)


def numbers(entries: Structs, name: str) -> Longs:
    """Return one number of entries, in the byte order of the machine."""
    return entries[name].astype(np.int64)


_KINDS: Final = (QUEUES, BATCH_QUEUES)
MARGIN_MS: Final = 120_000
_MOST_CHECKED: Final = 64
_MOST_OPENED: Final = 128


class StoreQueues:
    """The queues of the store in a directory, beside the log that was planned."""

    def __init__(self, home: str, log: PlannedLog) -> None:
        self.home = home
        self.log = log
        self._views: dict[tuple[str, int], QueueView | None] = {}

    @cached_property
    def is_closed(self) -> bool:
        """Whether the store was cleanly closed."""
        return not os.path.exists(os.path.join(self.home, "abort"))

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """What the store says to be flushed."""
        try:
            return load_checkpoint(OS_FILES, os.path.join(self.home, "checkpoint"))
        except OSError:
            return Checkpoint()

    def view(self, topic: str, queue_id: int) -> QueueView | None:
        """Return a queue, ``None`` when nothing is known of it."""
        key = topic, queue_id
        if key not in self._views:
            files = open_queue(self.home, topic, queue_id, self.log.end)
            self._views[key] = None if files is None else QueueView(files)
        return self._views[key]

    def views_of(self, topic: str, queue_ids: Iterable[int] | None) -> list[QueueView] | None:
        """Return the queues of a topic, or those with some ids; ``None`` when one of them is not known."""
        if queue_ids is None:
            expected = self._queue_count(topic)
            if expected is None:
                return None
            queue_ids = {*range(expected), *self.queue_ids(topic)}
        found: list[QueueView] = []
        for queue_id in sorted(queue_ids):
            view = self.view(topic, queue_id)
            if view is None:
                return None
            found.append(view)
        return found

    def queue_ids(self, topic: str) -> list[int]:
        """Return the ids for which there are directories."""
        names = [name for kind in _KINDS for name in list_names(os.path.join(self.home, kind, topic))]
        return [int(name) for name in names if name.isdecimal()]

    def every_queue(self) -> Iterator[tuple[str, int]]:
        """Yield topic and id of each directory."""
        for topic in self._directories():
            for queue_id in self.queue_ids(topic):
                yield topic, queue_id

    @cached_property
    def _configured(self) -> dict[str, "_TopicCounts"]:
        """The topics of ``config/topics.json``, none where that cannot be read."""
        try:
            with open(os.path.join(self.home, "config", "topics.json"), "rb") as file:
                return read_json_as(file.read(), _TopicTable).topics
        except (OSError, JsonError):
            return {}

    def knows(self, topic: str) -> bool:
        """Tell whether the store has, or had, such a topic."""
        return topic in self._configured or any(os.path.isdir(os.path.join(self.home, kind, topic)) for kind in _KINDS)

    def known_topics(self) -> set[str]:
        """Return all topics that the store has or had."""
        return {*self._configured, *self._directories()}

    def _directories(self) -> list[str]:
        return [topic for kind in _KINDS for topic in list_names(os.path.join(self.home, kind))]

    def has_every_queue(self) -> bool:
        """Tell whether topics that have queues have all of theirs; but for system topics, which use few of them."""
        return all(self._has_all_of(topic) for topic in self._directories() if not is_system_topic(topic))

    def _has_all_of(self, topic: str) -> bool:
        expected = self._queue_count(topic)
        return expected is not None and set(range(expected)) <= set(self.queue_ids(topic))

    def sure_until(self, views: Iterable[QueueView]) -> int:
        """Return the log offset before which these queues know all of their records."""
        until = self._closed_until() if self.is_closed else self._flushed_until(views)
        for base, record in _some(list(self.log.first_records())):
            if base < until and record is not None:
                until = min(until, self._known_until(record))
        return until

    def _closed_until(self) -> int:
        """Return where the last record ends that a queue names, if there are not too many queues to ask."""
        keys = list(islice(self.every_queue(), _MOST_OPENED + 1))
        if len(keys) > _MOST_OPENED:
            return self.log.end
        views = [view for key in keys if (view := self.view(*key)) is not None]
        ends = [view.record_end(view.files.stop - 1) for view in views if view.files.stop > view.files.first]
        return min(max(ends, default=0), self.log.end)

    def _flushed_until(self, views: Iterable[QueueView]) -> int:
        limit_ms = self.checkpoint.sure_at_ms - MARGIN_MS
        firsts = [base for base, record in self.log.first_records() if record and record.stored_at_ms <= limit_ms]
        return max((*firsts, *(self._flushed_by(view, limit_ms) for view in views)), default=0)

    def _flushed_by(self, view: QueueView, limit_ms: int) -> int:
        low, high = view.first_at(self.log.start), view.files.stop
        first = low
        while low < high:
            middle = (low + high) // 2
            record = self.log.record_at(view.log_offset(middle))
            if record is not None and record.stored_at_ms <= limit_ms:
                low = middle + 1
            else:
                high = middle
        return view.record_end(low - 1) if low > first else 0

    def _known_until(self, record: Record) -> int:
        """Return where the queue of a record ends in the log if the record is not in it."""
        view = self.view(record.topic, record.queue_id)
        if view is None or not is_in_queue(record) or view.end_offset > record.queue_offset:
            return self.log.end
        files = view.files
        return view.record_end(files.stop - 1) if files.stop > files.first else 0

    def _queue_count(self, topic: str) -> int | None:
        counts = self._configured.get(topic)
        return None if counts is None else max(counts.readable, counts.writable)


class _TopicCounts(msgspec.Struct):
    readable: int = msgspec.field(name="readQueueNums", default=0)
    writable: int = msgspec.field(name="writeQueueNums", default=0)


class _TopicTable(msgspec.Struct):
    topics: dict[str, _TopicCounts] = msgspec.field(name="topicConfigTable", default_factory=dict[str, _TopicCounts])


def _some(items: list[tuple[int, Record | None]]) -> list[tuple[int, Record | None]]:
    """Return a bounded number of them, the last one always."""
    step = -(-len(items) // _MOST_CHECKED)
    return [*items[:-1:step], *items[-1:]]
