"""The commit log: the records of all queues, one after the other, in files of equal size.

Rules of writing (store.md §2.3, §2.4, §2.7, §2.8):

- A record and at least 8 bytes behind it must fit into the rest of a file. Else the rest becomes a blank (``room``,
  magic ``0xCBD43194``) and the record opens the next file.
- ``add`` and ``roll`` only plan; ``commit`` writes everything planned with one ``pwritev`` per file and then moves
  ``max_offset``. A write that comes up short is undone: zeros over it, new files removed, plans dropped.
- Files are created at full size. The file after the active one may be prepared by the flusher before it is needed.
- With ``enabledAppendPropCRC`` a record ends in a checksum of all its bytes, which is a property. It is computed when
  the place is final; the limit of the properties includes it (``RecordEncoder``).

Rules of several directories (``LogPaths``, Java's ``MultiPathMappedFileQueue``; store.md §1):

- File k of the log goes to the directory k mod n of those that are neither read-only nor too full, in the order of
  their names; when all are too full, of those that are not read-only.
- A file stays where it is: once found, or chosen for a file that is being made, its directory is remembered.

Reading goes through read-only maps. A map is dropped, not closed, when it leaves the bounded set or its file leaves the
log: slices that are still being sent keep it alive, and a deleted file gives its room back with the last one.

It does not know queues or index.

Rules of the time that records are stamped with (``StoreTime``):

    stamp     the store time of a record. It is the wall clock; while that is behind, because somebody has set it back,
              half as fast as time passes, until the wall clock has caught up
    elapsed   what delays are measured with: time that passes, and forward with the wall clock (a machine that slept)

    1. Neither ever goes back, and each begins at the wall clock, or at the last record of the store if that is later.
    2. To set the wall clock back takes no time: what was to wait for two hours waits for the rest of them, neither
       nothing nor the length of the step more.
    3. To set it forward does: as in Java, what is due by the wall clock is due.
    4. Since a stamp never stands still, it tells for each record of this process how much time has passed since. Of the
       records before only the stamp is known.
"""

import errno
import os
import struct
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from operator import itemgetter
from typing import NamedTuple, NoReturn, cast

import msgspec

from ...common.errors import ConfigError, MessageIllegalError, StoreFullError, StoreNotWritableError
from ...common.record import (
    BLANK_BYTES,
    MAGIC_BLANK,
    NewRecord,
    PlainPart,
    Verdict,
    check_record,
    encode_record,
    encode_records,
    reserve_property_crc,
    seal_property_crc,
)
from ..files.files import NO_ROOM, FileMap, Files, cut_off, make_tree, zero_range
from ..files.segments import SegmentFile, segment_path
from ..files.store_config import LOG_KEY, READ_ONLY_KEY, StoreConfig

_BLANK = struct.Struct(">iI")
_FAULTS = frozenset({Verdict.ZEROS, Verdict.MAGIC, Verdict.LENGTHS, Verdict.PLACE, Verdict.QUEUE_OFFSET})
_MAX_BUFFERS = 1024  # IOV_MAX of Linux and macOS


class LogPaths:
    """The directories of one log; ``full`` are those that get no new files at present."""

    def __init__(self, directories: Collection[str], file_bytes: int, read_only: Collection[str] = ()) -> None:
        self._writable = sorted(set(directories) - set(read_only))
        self._file_bytes = file_bytes
        self._held: dict[int, str] = {}
        self.full: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"<LogPaths {','.join(self._writable)}>"

    @property
    def are_several(self) -> bool:
        """Whether new files go to several directories in turn."""
        return len(self._writable) > 1

    def set_files(self, segments: Iterable[SegmentFile]) -> None:
        """Take over where the files are."""
        self._held = {segment.base_offset: segment.path for segment in segments}

    def path_of(self, base_offset: int) -> str:
        """Return where the file that begins at the position lies, or would be made."""
        held = self._held.get(base_offset)
        return held if held is not None else self._choose(base_offset)

    def hold(self, base_offset: int) -> str:
        """Return where the file lies, or shall be made from now on."""
        return self._held.setdefault(base_offset, self.path_of(base_offset))

    def set_file(self, base_offset: int, path: str) -> None:
        """Take over where a file is."""
        self._held[base_offset] = path

    def forget(self, base_offset: int) -> None:
        """Drop a file that is gone."""
        self._held.pop(base_offset, None)

    def forget_from(self, end: int) -> None:
        """Drop the files that begin at the position or behind it."""
        self._held = {base: path for base, path in self._held.items() if base < end}

    def _choose(self, base_offset: int) -> str:
        free = [directory for directory in self._writable if directory not in self.full] or self._writable
        return segment_path(free[base_offset // self._file_bytes % len(free)], base_offset)


def check_directories(files: Files, config: StoreConfig) -> None:
    """See to it that no directory of a log in several ones is missing, as one on a disk that is not mounted.

    Raises:
        ConfigError: A read-only directory is missing, or another one while there are files of the log elsewhere.
    """
    missing = [directory for directory in config.all_log_directories if not files.exists(directory)]
    read_only = config.read_only_directories
    for directory in missing:
        if directory in read_only:
            raise ConfigError(f"{READ_ONLY_KEY} names {directory}, which does not exist", key=READ_ONLY_KEY)
    if missing and any(files.list(directory) for directory in config.all_log_directories):
        raise ConfigError(
            f"{LOG_KEY} names {missing[0]}, which does not exist, while other directories hold the log; "
            "mount it, or make it if it is new",
            key=LOG_KEY,
        )


class OpenSegment:
    """One file of the log; ``descriptor`` is open for writing until the file is full and flushed."""

    __slots__ = ("base_offset", "descriptor", "is_full", "path", "size")

    def __init__(self, path: str, base_offset: int, descriptor: int, size: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self.descriptor = descriptor
        self.size = size
        self.is_full = False

    def __repr__(self) -> str:
        return f"<OpenSegment {self.path}{' full' if self.is_full else ''}>"


class _Run(NamedTuple):
    """What goes into one file by one commit."""

    start: int
    size: int
    buffers: list[bytes | memoryview]
    ends_file: bool


OTHER_SIZES = "mappedFileSizeCommitLog must be that of the master"


class CopyFault(NamedTuple):
    """What stands in a copy where a record should begin; ``is_of_sizes``: the master has files of another size."""

    log_offset: int
    reason: str
    is_of_sizes: bool


class CommitLog:
    """The writer and reader of the log's files (``CommitLog`` and ``MappedFileQueue``).

    ``max_offset`` is the end of what was written, ``append_offset`` the end of what is planned, ``room`` what is
    left of the file behind it.
    """

    def __init__(self, files: Files, where: LogPaths | str, file_bytes: int, *, max_maps: int = 64) -> None:
        self._files = files
        self.paths = LogPaths((where,), file_bytes) if isinstance(where, str) else where
        self._max_maps = max_maps
        self._maps: OrderedDict[int, memoryview] = OrderedDict()
        self._active: OpenSegment | None = None
        self._unflushed: list[OpenSegment] = []
        self._new_directories: set[str] = set()
        self._runs: list[_Run] = []
        self._buffers: list[bytes | memoryview] = []
        self._run_start = 0
        self.file_bytes = file_bytes
        self.min_offset = self.max_offset = self.append_offset = 0
        self.room = file_bytes

    def __repr__(self) -> str:
        return f"<CommitLog {self.paths} {self.min_offset}..{self.max_offset}>"

    def set_bounds(self, min_offset: int, max_offset: int) -> None:
        """Take over what recovery found: the first file's position and the end of the last record."""
        self.min_offset = min_offset
        self.max_offset = max_offset
        self.paths.forget_from(max_offset)
        for base in [base for base in self._maps if base >= max_offset]:
            del self._maps[base]  # the file is gone; another one will take its place
        self.drop_plans()

    def close(self) -> None:
        """Close the files that are open for writing; maps end with their last slice."""
        for segment in {*self._unflushed, *([self._active] if self._active else [])}:
            self._files.close(segment.descriptor)
        self._active = None
        self._unflushed = []
        self._maps.clear()

    def add(self, records: bytes | memoryview, size: int) -> None:
        """Plan records of ``size`` bytes at ``append_offset``; the caller has seen to it that they fit ``room``."""
        self._buffers.append(records)
        self.append_offset += size
        self.room -= size

    def add_copy(self, log_offset: int, data: bytes | memoryview) -> None:
        """Plan bytes of another broker's log at their place, in one file; raises ``ValueError`` at any other place."""
        if not self.append_offset and log_offset and not log_offset % self.file_bytes:
            self.set_bounds(log_offset, log_offset)
        if log_offset != self.append_offset:
            raise ValueError(f"copied bytes stand at {log_offset}, the log ends at {self.append_offset}")
        if len(data) > self.room:
            raise ValueError(f"copied bytes are {len(data)}, the file has room for {self.room}: {OTHER_SIZES}")
        self.add(data, len(data))
        if not self.room:
            self._end_run(self.append_offset, ends_file=True)
            self._run_start, self.room = self.append_offset, self.file_bytes

    def find_fault(self, log_offset: int) -> CopyFault | None:
        """Tell if what follows the last whole record of a copy can become no record, whatever else is copied."""
        while True:
            base = log_offset - log_offset % self.file_bytes
            end = min(self.max_offset - base, self.file_bytes)
            position = log_offset - base
            if end - position < BLANK_BYTES:
                return None
            view = self.segment_view(base)
            verdict = check_record(view[:end], position, log_offset, checks_crc=False, reserved_bytes=0)
            if verdict == Verdict.TORN and end == self.file_bytes:
                return CopyFault(log_offset, f"no blank ends the file before {base + end}", is_of_sizes=True)
            if verdict != Verdict.BLANK:
                is_fault = verdict in _FAULTS
                return CopyFault(log_offset, Verdict(verdict).reason, is_of_sizes=False) if is_fault else None
            named: int = _BLANK.unpack_from(view, position)[0]
            if named != self.file_bytes - position:
                return CopyFault(log_offset, f"a blank ends the file at {log_offset + named}", is_of_sizes=True)
            log_offset = base + self.file_bytes

    def take_back(self, log_offset: int) -> None:
        """End the log at a position of its newest file, and zero what was behind it (raises ``OSError``)."""
        segment = self._segment_for(log_offset)
        start = log_offset - segment.base_offset
        zero_range(self._files, segment.descriptor, start, self.file_bytes)
        self._active = segment
        if segment not in self._unflushed:
            self._unflushed.append(segment)
        self.max_offset = log_offset
        self.drop_plans()

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
        written: list[tuple[OpenSegment, _Run]] = []
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

    def take_unflushed(self) -> list[OpenSegment]:
        """Return the files written since the last call, oldest first; whoever flushes a full one closes it."""
        taken, self._unflushed = self._unflushed, []
        return taken

    def take_new_directories(self) -> set[str]:
        """Return the directories in which files were created since the last call."""
        taken, self._new_directories = self._new_directories, set()
        return taken

    def spare(self) -> tuple[str, int] | None:
        """Return path and size of the next file, to be prepared, once the active one is half full."""
        is_due = self.room * 2 < self.file_bytes
        return (self.paths.hold(self._next_base()), self.file_bytes) if is_due else None

    def remove_spare(self) -> None:
        """Remove a prepared file that was not needed."""
        path = self.paths.path_of(self._next_base())
        if self._files.exists(path):
            self._files.unlink(path)
            self._new_directories.add(os.path.dirname(path))
        self.paths.forget(self._next_base())

    def removable_files(self, end: int, most: int) -> list[str]:
        """Return the first files that end at or before the position, never the last one of the log."""
        last = self.max_offset - 1 - (self.max_offset - 1) % self.file_bytes
        stop = min(last, self.min_offset + most * self.file_bytes, end - end % self.file_bytes)
        return [self.paths.path_of(base) for base in range(self.min_offset, stop, self.file_bytes)]

    def drop_first(self) -> str:
        """Let the first file leave the log; the caller removes it, or calls ``keep_first`` if that fails."""
        base = self.min_offset
        path = self.paths.path_of(base)
        self._maps.pop(base, None)
        self.paths.forget(base)
        self.min_offset = base + self.file_bytes
        return path

    def keep_first(self, path: str) -> None:
        """Take the file that was dropped last into the log again."""
        self.min_offset -= self.file_bytes
        self.paths.set_file(self.min_offset, path)

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

    def records_from(self, log_offset: int) -> Iterator[memoryview]:
        """Yield the whole records from a position on, up to the end of the log or to what is no record.

        Checksums are not looked at (raises ``OSError``).
        """
        while log_offset < self.max_offset:
            base = log_offset - log_offset % self.file_bytes
            end = min(self.max_offset - base, self.file_bytes)
            written, position = self.segment_view(base)[:end], log_offset - base
            size = check_record(written, position, log_offset, checks_crc=False, reserved_bytes=0)
            while size > 0:
                yield written[position : position + size]
                position += size
                size = check_record(written, position, base + position, checks_crc=False, reserved_bytes=0)
            if size != Verdict.BLANK or end < self.file_bytes:
                return
            log_offset = base + self.file_bytes

    def segment_view(self, base_offset: int) -> memoryview:
        """Return the map of a whole file, written or not (raises ``OSError``, also for one that was cut)."""
        view = self._maps.get(base_offset)
        if view is not None:
            if (found := cast("FileMap", view.obj).size()) < self.file_bytes:  # to read behind that ends the process
                raise cut_off(self.paths.path_of(base_offset), found, self.file_bytes)
            self._maps.move_to_end(base_offset)
            return view
        view = self._files.map(self.paths.path_of(base_offset), self.file_bytes)
        while len(self._maps) >= self._max_maps:
            self._maps.popitem(last=False)
        self._maps[base_offset] = view
        return view

    def _next_base(self) -> int:
        return -(-self.max_offset // self.file_bytes) * self.file_bytes

    def _segment_for(self, log_offset: int) -> OpenSegment:
        base = log_offset - log_offset % self.file_bytes
        if self._active is not None and self._active.base_offset == base:
            return self._active
        path = self.paths.path_of(base)
        directory = os.path.dirname(path)
        # With several directories the name of the file before may be in another one, which a power loss could forget
        # while it keeps this one: the log would seem to begin here. Files are far larger than what a flush waits for,
        # so this hardly ever happens twice between two flushes.
        for other in sorted(self._new_directories - {directory}) if self.paths.are_several else ():
            self._files.sync_directory(other)
            self._new_directories.discard(other)
        self._new_directories.update(make_tree(self._files, directory), (directory,))
        segment = OpenSegment(path, base, self._files.create(path, self.file_bytes), self.file_bytes)
        self.paths.set_file(base, path)
        return segment

    def _end_run(self, end: int, *, ends_file: bool) -> None:
        self._runs.append(_Run(self._run_start, end - self._run_start, self._buffers, ends_file))
        self._buffers = []

    def _write(self, segment: OpenSegment, buffers: list[bytes | memoryview], start: int, size: int) -> None:
        if len(buffers) > _MAX_BUFFERS:
            buffers = [b"".join(buffers)]
        count = self._files.pwritev(segment.descriptor, buffers, start - segment.base_offset)
        if count != size:
            raise OSError(errno.ENOSPC, f"{count} of {size} bytes were written")

    def _undo(self, written: list[tuple[OpenSegment, _Run]], error: OSError) -> NoReturn:
        self.drop_plans()
        where = os.path.dirname(written[-1][0].path if written else self.paths.path_of(self._next_base()))
        try:
            for segment, run in reversed(written):
                start = run.start - segment.base_offset
                if start:
                    zero_range(self._files, segment.descriptor, start, start + run.size)
                else:
                    self._files.unlink(segment.path)
                    self.paths.forget(segment.base_offset)
                    self._maps.pop(segment.base_offset, None)
                if segment is not self._active:
                    self._files.close(segment.descriptor)
        except OSError as second:
            raise StoreNotWritableError(f"cannot take back a failed write to {where}: {second}") from error
        if error.errno in NO_ROOM:
            raise StoreFullError(f"no room to write to {where}: {error.strerror}") from error
        raise StoreNotWritableError(f"cannot write to {where}: {error.strerror}") from error


_PROPERTY_ROOM = 65_536


class RecordEncoder:
    """Encodes records; ``store_host`` is the host that they name."""

    def __init__(self, config: StoreConfig, store_host: bytes) -> None:
        self.store_host = store_host
        self._seals = config.seals_records
        self._body_limit = self._record_limit = self._sure_limit = 0
        self.set_limits(config)

    def set_limits(self, config: StoreConfig) -> None:
        """Refuse what is longer than this from now on."""
        self._body_limit = config.max_message_bytes
        self._record_limit = min(config.max_message_bytes + _PROPERTY_ROOM, config.segment_bytes - BLANK_BYTES)
        self._sure_limit = min(self._body_limit, self._record_limit)  # what is below it keeps both

    def encode(self, new: NewRecord, queue_offset: int, log_offset: int, stored_at_ms: int) -> bytes:
        """Return the record at its place (raises ``MessageIllegalError``)."""
        if self._seals:
            new = msgspec.structs.replace(new, property_text=reserve_property_crc(new.property_text))
        try:
            data = encode_record(new, queue_offset, log_offset, stored_at_ms, self.store_host)
        except ValueError as error:
            raise MessageIllegalError(str(error)) from error
        if len(data) > self._sure_limit:
            self._check(len(data), len(new.body))
        return seal_property_crc(data) if self._seals else data

    def _check(self, size: int, body_size: int) -> None:
        if size > self._record_limit:
            raise MessageIllegalError(f"record is {size} bytes, limit is {self._record_limit}")
        if body_size > self._body_limit:
            raise MessageIllegalError(f"body is {body_size} bytes, limit is {self._body_limit}")

    def encode_run(
        self, head: NewRecord, parts: list[PlainPart], place: tuple[int, int], stored_at_ms: int
    ) -> tuple[bytes, list[int]]:
        """Return the records of a batch from a place on, and their sizes, as ``encode_records`` does.

        Raises:
            MessageIllegalError: One is too long.
        """
        if self._seals:
            return self._seal_run(head, parts, place, stored_at_ms)
        try:
            data, sizes = encode_records(head, parts, place, stored_at_ms, self.store_host)
        except ValueError as error:
            raise MessageIllegalError(str(error)) from error
        if max(sizes) > self._sure_limit:
            for size, (_, body, _) in zip(sizes, parts, strict=True):
                self._check(size, len(body))
        return data, sizes

    def _seal_run(
        self, head: NewRecord, parts: list[PlainPart], place: tuple[int, int], stored_at_ms: int
    ) -> tuple[bytes, list[int]]:
        queue_offset, log_offset = place
        records: list[bytes] = []
        for flag, body, text in parts:
            new = msgspec.structs.replace(head, flag=flag, body=body, property_text=text)
            records.append(self.encode(new, queue_offset + len(records), log_offset, stored_at_ms))
            log_offset += len(records[-1])
        return b"".join(records), list(map(len, records))


_ROUNDING_MS = 2  # two clocks that are read one after the other, in whole milliseconds
_MOST_CORNERS = 64
_stamp_of = itemgetter(0)


class StoreTime:
    """Reads both clocks whenever it is asked."""

    def __init__(self, wall_ms: Callable[[], int], monotonic_ms: Callable[[], int], last_stamp_ms: int) -> None:
        self._wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms
        self._seen_ms: int = monotonic_ms()
        self._wall_seen_ms: int = -1
        start_ms = max(wall_ms(), last_stamp_ms)
        self._elapsed_ms: int = start_ms
        self._half_stamps: int = 2 * start_ms  # in halves of a millisecond
        self._is_behind: bool = False
        self._corners = [(start_ms, start_ms)]  # stamp and elapsed where one began to go at another pace

    def __repr__(self) -> str:
        return f"<StoreTime {self._half_stamps // 2}, elapsed {self._elapsed_ms}>"

    def stamp_ms(self) -> int:
        """Return the store time of a record that is stored now."""
        wall_ms, seen_ms = self._wall_ms(), self._monotonic_ms()
        if seen_ms == self._seen_ms and wall_ms == self._wall_seen_ms:  # nearly always under load
            return self._half_stamps // 2
        self._wall_seen_ms = wall_ms
        passed_ms, self._seen_ms = max(0, seen_ms - self._seen_ms), seen_ms
        before = self._half_stamps // 2, self._elapsed_ms
        halves = self._half_stamps + passed_ms
        is_behind = wall_ms < halves // 2
        is_jump = not is_behind and abs(wall_ms - before[0] - passed_ms) > _ROUNDING_MS
        self._half_stamps = halves if is_behind else 2 * wall_ms
        self._elapsed_ms = max(self._elapsed_ms + passed_ms, wall_ms)
        if is_behind != self._is_behind or is_jump:
            self._is_behind = is_behind
            self._corners += before, (self._half_stamps // 2, self._elapsed_ms)
            del self._corners[:-_MOST_CORNERS]
        return self._half_stamps // 2

    def elapsed_ms(self) -> int:
        """Return the instant to compare with ``elapsed_at``."""
        self.stamp_ms()  # it looks at the clocks
        return self._elapsed_ms

    def elapsed_at(self, stamp_ms: int) -> int:
        """Return what ``elapsed_ms`` was when a record with that store time was stored."""
        corners = [*self._corners, (self._half_stamps // 2, self._elapsed_ms)]
        place = bisect_right(corners, stamp_ms, key=_stamp_of)
        stamp, elapsed = corners[max(0, place - 1)]
        if place in (0, len(corners)):
            return stamp_ms + elapsed - stamp
        following, elapsed_then = corners[place]
        return elapsed + (stamp_ms - stamp) * (elapsed_then - elapsed) // (following - stamp)
