"""One consume queue: where the records of a (topic, queue id) lie in the log.

    log offset 8 | record size 4 | tags code 8        = 20 bytes; entry n of the queue stands at byte 20 n

Rules (``ConsumeQueue``; store.md §3):

- Entries are written at ``max_offset`` only, gapless. The first file of a queue that begins at a later offset is
  filled up with pre-blank entries (0, 0x7FFFFFFF, 0), which readers skip.
- A short write is taken back, so that an entry is there as a whole or not at all.
- ``min_offset`` is the first entry whose record is still in the log. The last file stays when all of its records
  are gone: the numbering goes on.
- The units of batch queues are longer and begin with the same 20 bytes: ``batch_queue`` keeps them in such a queue,
  whose offsets are then numbers of units.

When the log has lost its first files, a queue loses its own (``find_cut``, Java's ``deleteExpiredFile``; store.md
§8.3):

    view     what the queue is at a moment, taken on the thread that owns the store
    cut      what of it lies before the log, read from its files in any thread
    applied  on the owner's thread again: the queue forgets its first files; then somebody removes them

Rules of that:

- The leading files whose last entry lies before the log go, never the last file: the numbering stays in it.
- The first entry is then the first one whose record is in the log, the end of the queue when there is none; pre-blank
  entries count as lying before everything.
- What a queue gets meanwhile lies in the log, so a cut is right also for a queue that has grown. For one that has lost
  its files in between it is nothing.

It does not look into records.
"""

import errno
import os
import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from ..files.file_sync import UnsyncedFiles
from ..files.files import Descriptors, Files, make_tree, zero_range
from ..files.segments import segment_path
from ..files.store_config import ENTRY_BYTES

ENTRY: Final = struct.Struct(">qiq")
PRE_BLANK_SIZE: Final = 0x7FFFFFFF
PRE_BLANK = ENTRY.pack(0, PRE_BLANK_SIZE, 0)

_HEAD_ENTRIES: Final = 80

Entry = tuple[int, int, int]


class ConsumeQueue:
    """The entries of one queue; ``next_offset`` is the one that the next message gets.

    ``max_offset`` is the end of the entries that are written and readable; ``next_offset`` runs ahead of it while
    messages are on their way. Positions of files are in bytes, as in their names.
    """

    is_batch = False
    __slots__ = (
        "_file_bytes",
        "_space",
        "_tail_path",
        "_unit_bytes",
        "directory",
        "first_base",
        "last_base",
        "max_offset",
        "min_offset",
        "next_offset",
        "pending",
        "queue_id",
        "topic",
    )

    def __init__(self, space: "QueueSpace", topic: str, queue_id: int) -> None:
        self._space = space
        self._file_bytes = space.file_bytes
        self._unit_bytes = space.unit_bytes
        self.topic = topic
        self.queue_id = queue_id
        self.directory = f"{space.root}/{topic}/{queue_id}"
        self.first_base = self.last_base = -1
        self._tail_path = ""
        self.min_offset = self.max_offset = self.next_offset = 0
        self.pending = bytearray()

    def __repr__(self) -> str:
        return f"<ConsumeQueue {self.topic}-{self.queue_id} {self.min_offset}..{self.max_offset}>"

    def set_files(self, first_base: int, last_base: int) -> None:
        """Take over which files exist."""
        self.first_base, self.last_base = first_base, last_base
        self._tail_path = segment_path(self.directory, last_base)

    def find_end(self) -> None:
        """Find the end of the entries: the first invalid one in the last file that holds any (store.md §3.9)."""
        head = self._read_tail_file(0, _HEAD_ENTRIES)
        while self.last_base > self.first_base and not _has_entry(head):
            self._remove_last_file()
            head = self._read_tail_file(0, _HEAD_ENTRIES)
        first = max(self.last_base, 0) // self._unit_bytes
        in_head = len(head) // self._unit_bytes
        low, high = 0, self.file_entries if self.last_base >= 0 else 0
        while low < high:
            middle = in_head - 1 if low < in_head < high else (low + high) // 2  # most queues end within the head
            data = head[middle * self._unit_bytes :] if middle < in_head else self._read_tail_file(middle, 1)
            low, high = (middle + 1, high) if _has_entry(data) else (low, middle)
        self.set_end(first + low)
        self.min_offset = min(max(self.first_base, 0) // self._unit_bytes, first + low)

    def _read_tail_file(self, entry: int, count: int) -> bytes:
        if self.last_base < 0:
            return b""
        size = min(count * self._unit_bytes, self._file_bytes)  # many are read from the begin only
        descriptor = self._space.descriptors.get(self._tail_path)
        return self._space.files.pread(descriptor, size, entry * self._unit_bytes)

    def set_end(self, max_offset: int) -> None:
        """Take over the end of the entries; nothing is on its way."""
        self.max_offset = self.next_offset = max_offset

    def begin_at(self, queue_offset: int) -> None:
        """Begin a queue without entries at an offset: a copy of a log may start anywhere."""
        if not self.max_offset:
            self.max_offset = self.next_offset = self.min_offset = queue_offset

    def paths(self) -> list[str]:
        """Return the queue's files in order."""
        if self.first_base < 0:
            return []
        return [
            segment_path(self.directory, base) for base in range(self.first_base, self.last_base + 1, self._file_bytes)
        ]

    def write_pending(self) -> None:
        """Write the entries collected in ``pending`` behind the last one.

        Raises:
            OSError: They were not written (all of those that go into one file, or none); ``pending`` holds the rest.
        """
        data = self.pending
        while data:
            position = self.max_offset * self._unit_bytes - self.last_base
            if self.last_base < 0 or position >= self._file_bytes:
                self._add_file()
                continue
            size, left = len(data), self._file_bytes - position
            self._write(self._tail_path, data if size <= left else data[:left], position)
            size = min(size, left)
            self.max_offset += size // self._unit_bytes
            del data[:size]

    def read(self, queue_offset: int, count: int) -> bytes:
        """Return up to ``count`` entries from the offset on, all from one file and below ``max_offset``.

        Raises:
            OSError: The file is gone, or somebody has cut it.
        """
        position = queue_offset * self._unit_bytes
        base = position - position % self._file_bytes
        size = min(min(count, self.max_offset - queue_offset) * self._unit_bytes, base + self._file_bytes - position)
        if size <= 0 or base < self.first_base or self.first_base < 0:
            return b""
        path = self._tail_path if base == self.last_base else segment_path(self.directory, base)
        return self._space.files.read_whole(self._space.descriptors.get(path), size, position - base, path)

    def entry(self, queue_offset: int) -> Entry | None:
        """Return one entry, ``None`` when it is outside the queue's files."""
        data = self.read(queue_offset, 1)
        return ENTRY.unpack_from(data) if len(data) == self._unit_bytes else None

    def file_start(self, queue_offset: int) -> int:
        """Return the first offset of the file that holds the entry."""
        entries = self._file_bytes // self._unit_bytes
        return queue_offset - queue_offset % entries

    @property
    def unit_bytes(self) -> int:
        """How long an entry is."""
        return self._unit_bytes

    @property
    def file_entries(self) -> int:
        """How many entries a file holds."""
        return self._file_bytes // self._unit_bytes

    def first_at(self, log_offset: int, low: int, high: int) -> int:
        """Return the first offset in [low, high) whose record lies at or behind the log position, else ``high``.

        Pre-blank entries count as lying before everything.
        """
        while low < high:
            middle = (low + high) // 2
            entry = self.entry(middle)
            if entry is not None and entry[0] >= log_offset and entry[1] != PRE_BLANK_SIZE:
                high = middle
            else:
                low = middle + 1
        return low

    def correct_min_offset(self, log_min_offset: int) -> None:
        """Move ``min_offset`` to the first entry whose record is still in the log (``correctMinOffset``)."""
        low = max(self.min_offset, max(self.first_base, 0) // self._unit_bytes)
        first = self.entry(low)
        if first is None or first[0] < log_min_offset or first[1] == PRE_BLANK_SIZE:
            low = self.first_at(log_min_offset, low, self.max_offset)
        self.min_offset = low

    def drop_head(self, first_base: int, min_offset: int) -> list[str]:
        """Forget the files before a position and the entries before an offset; return the files, to be removed."""
        paths = [segment_path(self.directory, base) for base in range(self.first_base, first_base, self._file_bytes)]
        for path in paths:
            self._space.descriptors.drop(path)
            self._space.dirty_paths.discard(path)
        self.first_base = first_base
        self.min_offset = max(self.min_offset, min_offset)
        return paths

    def take_back(self, paths: Sequence[str]) -> None:
        """Take files again that ``drop_head`` let go: the last ones of the queue, which could not be removed."""
        self.set_files(int(paths[0][-20:]), int(paths[-1][-20:]))
        self.mark_written_from(self.first_base // self._unit_bytes)

    def cut(self, end: int) -> None:
        """Drop the entries from ``end`` on: zeros in their file, later files removed."""
        if end * self._unit_bytes < self.first_base:
            self.remove()
        keep_base = max(self.first_base, (end * self._unit_bytes) - (end * self._unit_bytes) % self._file_bytes)
        while self.last_base > keep_base:
            self._remove_last_file()
        if self.last_base >= 0:
            start = max(0, end * self._unit_bytes - self.last_base)
            zero_range(self._space.files, self._space.descriptors.get(self._tail_path), start, self._file_bytes)
            self._space.dirty_paths.add(self._tail_path)
        self.pending.clear()
        self.set_end(end)
        self.min_offset = min(self.min_offset, end)

    def remove(self) -> None:
        """Remove all files; the queue begins anew at 0."""
        while self.last_base >= 0:
            self._remove_last_file()
        self.pending.clear()
        self.set_end(0)
        self.min_offset = 0

    def mark_written_from(self, queue_offset: int) -> None:
        """Have the files from that of an entry on flushed, and the names that lead to them."""
        for path in self.paths():
            if int(path[-20:]) + self._file_bytes > queue_offset * self._unit_bytes:
                self._space.dirty_paths.add(path)
        topic_directory = os.path.dirname(self.directory)
        root = os.path.dirname(topic_directory)
        self._space.new_directories.update((self.directory, topic_directory, root, os.path.dirname(root)))

    def _write(self, path: str, data: bytes | bytearray, position: int) -> None:
        descriptor = self._space.descriptors.get(path)
        count = self._space.files.pwrite(descriptor, data, position)
        if count != len(data):
            zero_range(self._space.files, descriptor, position, position + count)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        dirty = self._space.dirty_paths
        dirty[path] = dirty.get(path, 0) + count

    def _add_file(self) -> None:
        position = self.max_offset * self._unit_bytes
        base = position - position % self._file_bytes
        path = segment_path(self.directory, base)
        self._space.new_directories.update(make_tree(self._space.files, self.directory), (self.directory,))
        self._space.descriptors.create(path, self._file_bytes)
        if self._tail_path in self._space.dirty_paths:
            self._space.dirty_paths.add(self._tail_path)  # it is full
        if self.first_base < 0 and position > base:
            self._write(path, PRE_BLANK * ((position - base) // self._unit_bytes), 0)
        self.set_files(base if self.first_base < 0 else self.first_base, base)

    def _remove_last_file(self) -> None:
        self._space.descriptors.drop(self._tail_path)
        self._space.dirty_paths.discard(self._tail_path)
        self._space.files.unlink(self._tail_path)
        self._space.new_directories.add(self.directory)
        if self.last_base == self.first_base:
            self.first_base = self.last_base = -1
        else:
            self.set_files(self.first_base, self.last_base - self._file_bytes)


def _has_entry(data: bytes) -> bool:
    log_offset, size, _ = ENTRY.unpack_from(data)
    return log_offset >= 0 and size > 0


class QueueSpace:
    """What all queues of a kind share; ``dirty_paths`` and ``new_directories`` are what the next flush takes."""

    def __init__(
        self, files: Files, root: str, file_bytes: int, descriptors: Descriptors, unit_bytes: int = ENTRY_BYTES
    ) -> None:
        self.files = files
        self.root = root
        self.file_bytes = file_bytes
        self.unit_bytes = unit_bytes
        self.descriptors = descriptors
        self.dirty_paths = UnsyncedFiles()
        self.new_directories: set[str] = set()

    def find_queues(self) -> Iterator[tuple[str, int]]:
        """Yield topic and queue id of each queue that has a directory."""
        for topic in self.files.list(self.root):
            for queue in self.files.list(f"{self.root}/{topic.name}") if topic.is_directory else ():
                if queue.is_directory and queue.name.isascii() and queue.name.isdigit():
                    yield topic.name, int(queue.name)

    def clear_directory(self, directory: str) -> None:
        """Remove the files of a directory."""
        for entry in self.files.list(directory):
            if not entry.is_directory:
                self.files.unlink(f"{directory}/{entry.name}")
                self.new_directories.add(directory)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory, if it is there."""
        if self.files.exists(path):
            self.files.remove_directory(path)
            self.new_directories.add(os.path.dirname(path))


class HeadView(NamedTuple):
    """A queue's files and entries at a moment; ``unit_bytes`` is the length of an entry."""

    directory: str
    first_base: int
    last_base: int
    min_offset: int
    max_offset: int
    file_bytes: int
    unit_bytes: int


class QueueTrim(NamedTuple):
    """Where the queue begins, and the files before that; ``last_log_offset`` is where its last record lies."""

    first_base: int
    min_offset: int
    paths: tuple[str, ...]
    last_log_offset: int


def view_head(queue: ConsumeQueue) -> HeadView:
    """Return what the queue is now."""
    return HeadView(
        queue.directory,
        queue.first_base,
        queue.last_base,
        queue.min_offset,
        queue.max_offset,
        queue.file_entries * queue.unit_bytes,
        queue.unit_bytes,
    )


def find_cut(files: Files, view: HeadView, log_min_offset: int) -> QueueTrim | None:
    """Return what lies before the log, ``None`` when the queue has no entries or its files are gone; reads them."""
    if view.first_base < 0 or not view.max_offset:
        return None
    try:
        return _find_cut(files, view, log_min_offset)
    except FileNotFoundError:
        return None


def _find_cut(files: Files, view: HeadView, log_min_offset: int) -> QueueTrim:
    def is_in_log(queue_offset: int) -> bool:
        log_offset, size, _ = _read_entry(files, view, queue_offset)
        return log_offset >= log_min_offset and size != PRE_BLANK_SIZE

    step = view.file_bytes // view.unit_bytes
    base = view.first_base
    while base < view.last_base and not is_in_log(base // view.unit_bytes + step - 1):
        base += view.file_bytes
    low = max(view.min_offset, base // view.unit_bytes)
    high = min(view.max_offset, base // view.unit_bytes + step)
    while low < high:
        middle = low if low == view.min_offset else (low + high) // 2
        if is_in_log(middle):
            high = middle
        else:
            low = middle + 1
    paths = tuple(segment_path(view.directory, gone) for gone in range(view.first_base, base, view.file_bytes))
    return QueueTrim(base, low, paths, _read_entry(files, view, view.max_offset - 1)[0])


def _read_entry(files: Files, view: HeadView, queue_offset: int) -> Entry:
    position = queue_offset * view.unit_bytes
    base = position - position % view.file_bytes
    path = segment_path(view.directory, base)
    descriptor = files.open(path)
    try:
        return ENTRY.unpack(files.read_whole(descriptor, ENTRY.size, position - base, path))
    finally:
        files.close(descriptor)
