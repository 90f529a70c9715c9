"""The directory ``timerlog``: one unit for each message that was put into the timer wheel.

    size 4 = 52 | unit before it in its slot 8, -1 none | magic 4 | written at ms 8 | delay ms 4 | log offset 8
    record size 4 | hash of the real topic 4 | zeros 8                                                      52 bytes
    blank  room 4 | zeros 8 | 0xCBD43194                                                                     16 bytes

Rules (``TimerLog``; store.md §10.5):

- A unit is given by its position in the whole log. Its slot is that of written at + delay.
- magic: 1 normal, with 2 it rolls, with 4 it deletes.
- A unit and a blank behind it must fit into the rest of a file, else the blank stands there and the next file goes on.
- Files have their full size from the start. The directory holds nothing else.

Rules of ``find_log_start``, which files lead to no record any more (store.md §10.7,
``deleteExpiredFileByOffsetForTimerLog``):

- Files go from the first on, never the last one. A file goes when all its units lead before the log begins. Java looks
  at the last unit only; after messages were read again from the timer topic, that one need not be the newest.
"""

import errno
import os
import struct
from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

from ..files.files import Files, make_tree, zero_range
from ..files.segments import Layout, SegmentFile, SegmentReader, list_segments, segment_path
from ..files.store_config import TIMER_LOG_KEY, StoreConfig

UNIT_BYTES: Final = 52
NORMAL: Final = 1
ROLLS: Final = 2
DELETES: Final = 4
_UNIT: Final = struct.Struct(">iqiqiqii8x")
_TIMES: Final = struct.Struct(">i8xiqi")
_BLANK: Final = struct.Struct(">iqI")
_MAGIC_BLANK: Final = 0xCBD43194
_BLOCK_BYTES: Final = 64 * UNIT_BYTES
_SCAN_BYTES: Final = 4_096 * UNIT_BYTES


class TimerUnit(NamedTuple):
    """One unit; ``previous`` is the position of the one before it in its slot."""

    previous: int
    magic: int
    written_at_ms: int
    delay_ms: int
    log_offset: int
    size: int
    topic_hash: int

    @property
    def due_at_ms(self) -> int:
        """The instant of its slot."""
        return self.written_at_ms + self.delay_ms

    @property
    def is_rolling(self) -> bool:
        """Whether the message is put into the wheel again instead of being delivered."""
        return bool(self.magic & ROLLS)

    @property
    def is_deleting(self) -> bool:
        """Whether the message deletes others of its slot."""
        return bool(self.magic & DELETES) and not self.is_rolling


def encode_unit(unit: TimerUnit) -> bytes:
    """Return the bytes of a unit."""
    return _UNIT.pack(UNIT_BYTES, *unit)


def decode_unit(data: bytes, position: int = 0) -> TimerUnit | None:
    """Return the unit that stands at a position of the bytes, ``None`` when none does."""
    if position + UNIT_BYTES > len(data):
        return None
    size, *values = _UNIT.unpack_from(data, position)
    unit = TimerUnit(*values)
    is_sound = size == UNIT_BYTES and not unit.magic & ~0xF and unit.log_offset >= 0 and unit.size > 0
    return unit if is_sound else None


def timer_log_directory(config: StoreConfig) -> str:
    """Return where the timer log lies."""
    return f"{config.root}/timerlog"


def find_timer_log(files: Files, config: StoreConfig) -> list[SegmentFile]:
    """Return the files of the timer log.

    Raises:
        ConfigError: A foreign file, or one of another length than the settings say.
        StoreDamagedError: One is missing between others.
    """
    layout = Layout([timer_log_directory(config)], config.timers.file_bytes, TIMER_LOG_KEY, config.root)
    return list_segments(files, layout)


class TimerLog:
    """The timer log of one store; ``end`` is where the next unit goes."""

    def __init__(self, files: Files, directory: str, file_bytes: int) -> None:
        self._files = files
        self._descriptor: int | None = None
        self._open_base = -1
        self.directory = directory
        self.file_bytes = file_bytes
        self.first_base = self.end = 0
        self.dirty_paths: set[str] = set()
        self.new_directories: set[str] = set()

    def __repr__(self) -> str:
        return f"<TimerLog {self.directory} {self.first_base}..{self.end}>"

    def close(self) -> None:
        """Close the file that is open for writing."""
        if self._descriptor is not None:
            self._files.close(self._descriptor)
            self._descriptor = None

    def path_of(self, position: int) -> str:
        """Return the file that holds a position."""
        return segment_path(self.directory, position - position % self.file_bytes)

    @property
    def room(self) -> int:
        """How many units fit before the next ``roll``."""
        return (self.file_bytes - self.end % self.file_bytes - _BLANK.size) // UNIT_BYTES

    def append(self, data: bytes) -> None:
        """Write units at ``end``; they fit into the room (raises ``OSError``, then none is there)."""
        self._write(data)
        self.end += len(data)

    def roll(self) -> None:
        """End the file with a blank and go on in the next (raises ``OSError``)."""
        room = self.file_bytes - self.end % self.file_bytes
        self._write(_BLANK.pack(room, 0, _MAGIC_BLANK))
        self.end += room

    def cut(self, end: int) -> None:
        """Drop what lies behind a position, in its file and in later ones."""
        self.close()
        for entry in reversed(self._files.list(self.directory)):
            if not entry.is_directory and int(entry.name) >= end and int(entry.name) > self.first_base:
                self._files.unlink(f"{self.directory}/{entry.name}")
                self.new_directories.add(self.directory)
        self.end = end
        if end % self.file_bytes or not end:
            self._zero_rest()

    def add_unsynced(self, start: int) -> None:
        """Take the files from a position up to the end for unflushed: a process that was killed has written them."""
        if start < self.end:
            self.new_directories.add(self.directory)
            bases = range(start - start % self.file_bytes, self.end, self.file_bytes)
            self.dirty_paths.update(map(self.path_of, bases))

    def remove_all(self) -> None:
        """Remove all files; the log begins anew at 0."""
        self.close()
        for entry in reversed(self._files.list(self.directory)):
            if not entry.is_directory:
                self._files.unlink(f"{self.directory}/{entry.name}")
                self._files.sync_directory(self.directory)
        self.first_base = self.end = 0
        self.dirty_paths.clear()

    def drop_before(self, position: int) -> list[str]:
        """Forget the files before that of a position; return them, to be removed."""
        start = position - position % self.file_bytes
        paths = [self.path_of(base) for base in range(self.first_base, start, self.file_bytes)]
        self.first_base = max(self.first_base, start)
        return paths

    def before(self, position: int) -> int | None:
        """Return where the last unit before a position stands, ``None`` when no file holds one."""
        if position % self.file_bytes:
            return position - UNIT_BYTES
        units = (self.file_bytes - _BLANK.size) // UNIT_BYTES
        return position - self.file_bytes + (units - 1) * UNIT_BYTES if position > self.first_base else None

    def _zero_rest(self) -> None:
        path = self.path_of(self.end)
        if self._files.exists(path):
            descriptor = self._files.open(path, writable=True)
            try:
                zero_range(self._files, descriptor, self.end % self.file_bytes, self.file_bytes)
            finally:
                self._files.close(descriptor)
            self.dirty_paths.add(path)

    def _write(self, data: bytes) -> None:
        position = self.end % self.file_bytes
        path = self.path_of(self.end)
        descriptor = self._writable(path, self.end - position)
        count = self._files.pwrite(descriptor, data, position)
        if count != len(data):
            zero_range(self._files, descriptor, position, position + count)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        self.dirty_paths.add(path)

    def _writable(self, path: str, base: int) -> int:
        if self._descriptor is None or self._open_base != base:
            self.close()
            self.new_directories.update(make_tree(self._files, self.directory), (self.directory,))
            self._descriptor = self._files.create(path, self.file_bytes)
            self._open_base = base
        return self._descriptor


class UnitReader(SegmentReader):
    """Reads units beside the timer log."""

    def __init__(self, files: Files, log: TimerLog) -> None:
        super().__init__(files, log.file_bytes, partial(segment_path, log.directory))
        self._log = log
        self._block = b""
        self._block_at = 0
        self.scanned_to = 0

    def unit(self, position: int) -> TimerUnit | None:
        """Return the unit at a position, ``None`` when none is there; the way back through a slot is short."""
        at = position - self._block_at
        if not 0 <= at <= len(self._block) - UNIT_BYTES:
            base = position - position % self._log.file_bytes
            self._block_at = max(base, position + UNIT_BYTES - _BLOCK_BYTES)
            self._block = self.read_bytes(self._block_at, position + UNIT_BYTES - self._block_at)
            at = position - self._block_at
        return decode_unit(self._block, at)

    def scan(self, start: int) -> Iterator[tuple[int, TimerUnit]]:
        """Yield position and unit from a position on as long as units follow; ``scanned_to`` is their end."""
        self.scanned_to = start
        while True:
            room = self._log.file_bytes - self.scanned_to % self._log.file_bytes
            data, at = self.read_bytes(self.scanned_to, min(_SCAN_BYTES, room)), 0
            while (unit := decode_unit(data, at)) is not None and unit.previous < self.scanned_to:
                yield self.scanned_to, unit
                self.scanned_to += UNIT_BYTES
                at += UNIT_BYTES
            if at == 0 and not _is_blank(data):
                return
            self.scanned_to += 0 if at else room

    def last_by_time(self, start: int, end: int) -> dict[int, int]:
        """Return for each instant the position of the last unit that is due then, of those between two positions."""
        found: dict[int, int] = {}
        position = start
        while position < end:
            room = self._log.file_bytes - position % self._log.file_bytes
            data = self.read_bytes(position, min(_SCAN_BYTES, room, end - position))
            for at in range(0, len(data) - UNIT_BYTES + 1, UNIT_BYTES):
                size, magic, written_at_ms, delay_ms = _TIMES.unpack_from(data, at)
                if size == UNIT_BYTES and not magic & ~0xF:
                    found[written_at_ms + delay_ms] = position + at
            position += min(_SCAN_BYTES, room)
        return found


def _is_blank(data: bytes) -> bool:
    return len(data) >= _BLANK.size and _BLANK.unpack_from(data)[2] == _MAGIC_BLANK


def find_log_start(files: Files, log: TimerLog, log_min_offset: int) -> int:
    """Return where the timer log may begin; slow (raises ``OSError``)."""
    start, last_base = log.first_base, log.end - log.end % log.file_bytes
    with UnitReader(files, log) as units:
        while start < last_base and _is_expired(units, log, start, log_min_offset):
            start += log.file_bytes
    return start


def _is_expired(units: UnitReader, log: TimerLog, base: int, log_min_offset: int) -> bool:
    end = base + log.file_bytes
    last = log.before(end)
    unit = None if last is None else units.unit(last)
    if unit is None or unit.log_offset >= log_min_offset:
        return False
    return all(one.log_offset < log_min_offset for position, one in units.scan(base) if position < end)
