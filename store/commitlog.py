"""The commit log: all records of all queues, one after the other, in files of equal size.

Rules (store.md §2.3, §2.4):

- A record and at least 8 bytes behind it must fit into the rest of a file. Else the rest becomes a blank (``room``,
  magic ``0xCBD43194``) and the record opens the next file.
- ``add`` and ``roll`` only plan; ``commit`` writes everything planned with one ``pwritev`` per file and then moves
  ``max_offset``. A write that comes up short is undone: zeros over it, new files removed, plans dropped.
- Files are created at full size. The file after the active one may be prepared by the flusher before it is needed.
- Reading goes through read-only maps. A map is dropped, not closed, when it leaves the bounded set: slices that are
  still being sent keep it alive.

It does not know queues, index or what a record holds.
"""

import errno
import struct
from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple, NoReturn

from ..common.errors import StoreFullError, StoreNotWritableError
from ..common.record import BLANK_BYTES, MAGIC_BLANK
from .files import NO_ROOM, Files, zero_range
from .segments import segment_path

_BLANK = struct.Struct(">iI")
_MAX_BUFFERS = 1024  # IOV_MAX of Linux and macOS


class Segment:
    """One file of the log; ``descriptor`` is open for writing until the file is full and flushed."""

    __slots__ = ("base_offset", "descriptor", "is_full", "path")

    def __init__(self, path: str, base_offset: int, descriptor: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self.descriptor = descriptor
        self.is_full = False

    def __repr__(self) -> str:
        return f"<Segment {self.path}{' full' if self.is_full else ''}>"


class _Run(NamedTuple):
    """What goes into one file by one commit."""

    start: int
    size: int
    buffers: list[bytes]
    ends_file: bool


class CommitLog:
    """The writer and reader of the log's files (``CommitLog`` and ``MappedFileQueue``).

    ``max_offset`` is the end of what was written, ``append_offset`` the end of what is planned, ``room`` what is
    left of the file behind it.
    """

    def __init__(self, files: Files, directory: str, file_bytes: int, *, max_maps: int = 64) -> None:
        self._files = files
        self._directory = directory
        self._max_maps = max_maps
        self._maps: OrderedDict[int, memoryview] = OrderedDict()
        self._active: Segment | None = None
        self._unflushed: list[Segment] = []
        self._has_new_files = False
        self._runs: list[_Run] = []
        self._buffers: list[bytes] = []
        self._run_start = 0
        self.file_bytes = file_bytes
        self.min_offset = self.max_offset = self.append_offset = 0
        self.room = file_bytes

    def __repr__(self) -> str:
        return f"<CommitLog {self._directory} {self.min_offset}..{self.max_offset}>"

    def set_bounds(self, min_offset: int, max_offset: int) -> None:
        """Take over what recovery found: the first file's position and the end of the last record."""
        self.min_offset = min_offset
        self.max_offset = max_offset
        self.drop_plans()

    def close(self) -> None:
        """Close the files that are open for writing; maps end with their last slice."""
        for segment in {*self._unflushed, *([self._active] if self._active else [])}:
            self._files.close(segment.descriptor)
        self._active = None
        self._unflushed = []
        self._maps.clear()

    def add(self, records: Iterable[bytes], size: int) -> None:
        """Plan records of ``size`` bytes at ``append_offset``; the caller has seen to it that they fit ``room``."""
        self._buffers += records
        self.append_offset += size
        self.room -= size

    def roll(self) -> None:
        """Plan the blank that ends the active file and go on at the start of the next."""
        self._buffers.append(_BLANK.pack(self.room, MAGIC_BLANK))
        end = self.append_offset + self.room
        self._end_run(self.append_offset + BLANK_BYTES, ends_file=True)
        self._run_start = self.append_offset = end
        self.room = self.file_bytes

    def commit(self) -> None:
        """Write everything that was planned.

        Raises:
            StoreFullError: The disk is full; nothing of it was kept.
            StoreNotWritableError: The disk failed, or what was written could not be taken back.
        """
        active = self._active
        if active is None or self._runs:
            self._commit_runs()
        else:
            size = self.append_offset - self._run_start
            try:
                self._write(active, self._buffers, self._run_start, size)
            except OSError as error:
                self._undo([(active, _Run(self._run_start, size, self._buffers, ends_file=False))], error)
            if active not in self._unflushed:
                self._unflushed.append(active)
        self._buffers = []
        self._run_start = self.max_offset = self.append_offset

    def _commit_runs(self) -> None:
        if self._buffers:
            self._end_run(self.append_offset, ends_file=False)
        written: list[tuple[Segment, _Run]] = []
        try:
            for run in self._runs:
                segment = self._segment_for(run.start)
                written.append((segment, run))
                self._write(segment, run.buffers, run.start, run.size)
        except OSError as error:
            self._undo(written, error)
        for segment, run in written:
            segment.is_full = run.ends_file
            if segment not in self._unflushed:
                self._unflushed.append(segment)
            self._active = None if run.ends_file else segment
        self._runs.clear()

    def drop_plans(self) -> None:
        """Forget what was planned and not written."""
        self._runs = []
        self._buffers = []
        self._run_start = self.append_offset = self.max_offset
        self.room = self.file_bytes - self.max_offset % self.file_bytes

    def take_unflushed(self) -> list[Segment]:
        """Return the files written since the last call, oldest first; whoever flushes a full one closes it."""
        taken, self._unflushed = self._unflushed, []
        return taken

    def take_new_directory(self) -> str | None:
        """Return the directory if files were created in it since the last call."""
        has_new_files, self._has_new_files = self._has_new_files, False
        return self._directory if has_new_files else None

    def spare(self) -> tuple[str, int] | None:
        """Return path and size of the next file, to be prepared, once the active one is half full."""
        is_due = self.room * 2 < self.file_bytes
        return (segment_path(self._directory, self._next_base()), self.file_bytes) if is_due else None

    def remove_spare(self) -> None:
        """Remove a prepared file that was not needed."""
        path = segment_path(self._directory, self._next_base())
        if self._files.exists(path):
            self._files.unlink(path)
            self._has_new_files = True

    def holds(self, log_offset: int, size: int) -> bool:
        """Tell whether the bytes are written and in one file."""
        if log_offset < self.min_offset or log_offset + size > self.max_offset or size <= 0:
            return False
        return log_offset % self.file_bytes + size <= self.file_bytes

    def next_file(self, log_offset: int) -> int:
        """Return the position of the file behind the one that holds the position."""
        return log_offset - log_offset % self.file_bytes + self.file_bytes

    def slice(self, log_offset: int, size: int) -> memoryview | None:
        """Return written bytes of one file, ``None`` when they are outside the log or cross a file's end."""
        if not self.holds(log_offset, size):
            return None
        position = log_offset % self.file_bytes
        return self.segment_view(log_offset - position)[position : position + size]

    def segment_view(self, base_offset: int) -> memoryview:
        """Return the map of a whole file, written or not."""
        view = self._maps.get(base_offset)
        if view is not None:
            self._maps.move_to_end(base_offset)
            return view
        descriptor = self._files.open(segment_path(self._directory, base_offset))
        try:
            view = self._files.map(descriptor, self.file_bytes)
        finally:
            self._files.close(descriptor)
        while len(self._maps) >= self._max_maps:
            self._maps.popitem(last=False)
        self._maps[base_offset] = view
        return view

    def _next_base(self) -> int:
        return -(-self.max_offset // self.file_bytes) * self.file_bytes

    def _segment_for(self, log_offset: int) -> Segment:
        base = log_offset - log_offset % self.file_bytes
        if self._active is not None and self._active.base_offset == base:
            return self._active
        self._files.make_directories(self._directory)
        path = segment_path(self._directory, base)
        self._has_new_files = True
        return Segment(path, base, self._files.create(path, self.file_bytes))

    def _end_run(self, end: int, *, ends_file: bool) -> None:
        self._runs.append(_Run(self._run_start, end - self._run_start, self._buffers, ends_file))
        self._buffers = []

    def _write(self, segment: Segment, buffers: list[bytes], start: int, size: int) -> None:
        if len(buffers) > _MAX_BUFFERS:
            buffers = [b"".join(buffers)]
        count = self._files.pwritev(segment.descriptor, buffers, start - segment.base_offset)
        if count != size:
            raise OSError(errno.ENOSPC, f"{count} of {size} bytes were written")

    def _undo(self, written: list[tuple[Segment, _Run]], error: OSError) -> NoReturn:
        self.drop_plans()
        try:
            for segment, run in reversed(written):
                start = run.start - segment.base_offset
                if start:
                    zero_range(self._files, segment.descriptor, start, start + run.size)
                else:
                    self._files.unlink(segment.path)
                if segment is not self._active:
                    self._files.close(segment.descriptor)
        except OSError as second:
            raise StoreNotWritableError(f"cannot take back a failed write to {self._directory}: {second}") from error
        if error.errno in NO_ROOM:
            raise StoreFullError(f"no room to write to {self._directory}: {error.strerror}") from error
        raise StoreNotWritableError(f"cannot write to {self._directory}: {error.strerror}") from error
