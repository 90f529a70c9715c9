"""Walks the records of a log file, from one that is surely a record, and finds the next sound one behind damage.

    … | record | record | record | …          the chain of a file: each record begins where the one before it ends
              anchor    ^ start  ^ first      a walk from any record of the chain leads to the first one of a split

    consumequeue/TOPIC/QUEUE ID/20 digits     entries of 20 bytes: log offset 8, record size 4, tags code 8

Rules:

- A window may end inside a record. The walk then goes on with a window that begins at that record and holds all of it,
  so what ends the walk is never the end of a window.
- Behind damage (``find_next_sound``): where only the content of a record is bad, its size tells where the next one
  begins, if a record or a blank begins there. Else the first sound record behind is taken, body checksum and log offset
  included, wherever it stands. A blank that fills the rest of its file is sound, too: nothing follows it.
- The first record of a split (``find_first_record``) is found so that all splits of a file agree. An anchor is a place
  that is in the chain for certain: an entry of a queue whose record is there, or else a record near the start of the
  split, in a stretch in which nothing but its chain looks like a record; else the file's start. The walk from it goes
  on behind damage as a reading that skips it does, so that both go on at one place.
- A body may hold copies of records, even such that name the log offset at which they stand. In a stretch with more of
  them than the chain has records, the chain cannot be told from them, and the walk begins at the start of the file.
- The stretch is longer than a record is (``maxMessageSize`` is 4 MiB). Of a larger one without entries in queues, a
  copy inside could be taken for a record; then a report shows it (``counters.find_split_faults``).
- A queue is searched by halving: its entries are in the order of the log (store.md §3.1), zeros follow them. An entry
  is believed if the record that it points to is sound, of that size, and of that place in that queue. So queues that
  are old, foreign or damaged do no harm, they only do not help. Of very many queues some are looked at, the nearest
  entry is taken, and none if it is far away.
"""

import os
import struct
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ...common.record import BLANK_BYTES, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, Verdict
from ...store.commitlog.record_blocks import Block, BlockScan, Longs, ScanLimits, SegmentBytes
from ...store.files.store_config import ENTRY_BYTES
from .filesystems import list_names
from .log_file import LogFile, check_at, record_at, size_at

HEADS_ONLY = ScanLimits(checks_crc=False)
_LEAST_BYTES = 4_096


class RecordWalk:
    """The records that start from ``position`` to ``stop`` and end by ``end``; iterating moves ``position``.

    Afterwards ``verdict`` tells what stands at ``position``; ``None`` means that ``stop`` was reached.
    """

    def __init__(self, file: LogFile, position: int, stop: int, limits: ScanLimits, end: int | None = None) -> None:
        self.position = position
        self.verdict: Verdict | None = None
        self._file = file
        self._stop = stop
        self._end = file.size if end is None else end
        self._limits = limits

    def __iter__(self) -> Iterator[Block]:
        """Yield blocks of good records; a block is yielded before what follows it is judged."""
        least = min(_LEAST_BYTES, self._end - self.position)
        while self.position < self._stop:
            window = self._file.window(self.position, least)
            scan = self._scan(window)
            yield from self._blocks(scan, window)
            if scan.verdict is None:
                return
            more = self._needed(window) if scan.verdict is Verdict.TORN else 0
            if not more:
                self.verdict = scan.verdict
                return
            least = more

    def _scan(self, window: SegmentBytes) -> BlockScan:
        shift = window.base_offset - self._file.base_offset
        end = min(window.size, self._end - shift)
        return BlockScan(window, self.position - shift, self._stop - shift, self._limits, end)

    def _blocks(self, scan: BlockScan, window: SegmentBytes) -> Iterator[Block]:
        shift = window.base_offset - self._file.base_offset
        for block in scan:
            self.position = shift + scan.position
            yield block

    def _needed(self, window: SegmentBytes) -> int:
        """Return how many bytes a window must hold for the record that this one ends in, 0 where that is no help."""
        left = self._end - self.position
        held = window.base_offset + window.size - self._file.base_offset - self.position
        size = size_at(window, self._file, self.position)
        needed = max(size, min(_LEAST_BYTES, left))
        return needed if held < needed <= left else 0


_RECORDS: Final = (MAGIC_V1.to_bytes(4, "big")[:3], bytes((MAGIC_V1 & 0xFF, MAGIC_V2 & 0xFF)))
_BLANK: Final = (MAGIC_BLANK.to_bytes(4, "big")[:3], bytes((MAGIC_BLANK & 0xFF,)))
_MAGIC_AT: Final = 4
_MAGIC_BYTES: Final = 4
_CHUNK: Final = 1 << 20

Numbers = npt.NDArray[np.uint8]
_SIZED: Final = frozenset((Verdict.MAGIC, Verdict.PLACE, Verdict.QUEUE_OFFSET, Verdict.BODY_CRC))


def find_next_sound(file: LogFile, position: int, stop: int, verdict: Verdict) -> int | None:
    """Return where the log goes on behind a bad record at ``position``, ``None`` where it does not before ``stop``.

    What stands there is a record that ends by ``stop``, or a blank.
    """
    if verdict in _SIZED:
        size = size_at(file.window(position, _MAGIC_BYTES), file, position)
        behind = position + size
        if size > 0 and behind + BLANK_BYTES <= stop and _is_sound(file, behind, stop, checks_crc=False):
            return behind
    behind = iter_candidates(file, position + 1, stop)
    return next((at for at in behind if _is_sound(file, at, stop, checks_crc=True)), None)


def find_sound_record(
    file: LogFile, start: int, stop: int, end: int | None = None, *, covers: Callable[[int], bool] | None = None
) -> int | None:
    """Return the first sound record from ``start`` to ``stop`` that ends by ``end``, and whose store time is covered.

    ``end`` is that of the file, unless it is given.
    """
    for position in iter_candidates(file, start, stop, blanks=False):
        if check_at(file, position, limit=end) > 0 and (covers is None or covers(stored_at(file, position))):
            return position
    return None


def stored_at(file: LogFile, position: int) -> int:
    """Return the store time of the sound record at a position."""
    return record_at(file, position).stored_at_ms


def iter_candidates(file: LogFile, start: int, stop: int, *, blanks: bool = True) -> Iterator[int]:
    """Yield the positions from ``start`` to ``stop`` behind which a magic stands, where the file is no hole."""
    for found in find_candidates(file, start, stop, blanks=blanks):
        yield from found.tolist()


def find_candidates(file: LogFile, start: int, stop: int, *, blanks: bool = False) -> Iterator[Longs]:
    """Yield what ``iter_candidates`` does, many at once."""
    magics = (_RECORDS, _BLANK) if blanks else (_RECORDS,)
    position = start
    while position < stop:
        data_at = file.next_data(position)
        if data_at is None:
            return
        position = max(position, data_at)
        last = min(position + _CHUNK, stop)
        size = max(0, min(last + _MAGIC_AT + _MAGIC_BYTES - 1, file.size) - position)
        window = file.window(position, size)
        at = position - (window.base_offset - file.base_offset)
        found = [_find_magic(window.numbers[at + _MAGIC_AT : at + size], magic) for magic in magics]
        yield np.sort(np.concatenate(found)) + position
        position = last


def _find_magic(numbers: Numbers, magic: tuple[bytes, bytes]) -> Longs:
    """Return where a magic begins among bytes: a start, and one of several ends; few bytes are like the first one."""
    start, ends = magic
    found = np.flatnonzero(numbers[: -_MAGIC_BYTES + 1] == start[0])
    for place in range(1, len(start)):
        found = found[numbers[found + place] == start[place]]
    last = numbers[found + len(start)]
    return found[np.logical_or.reduce([last == end for end in ends])]


def _is_sound(file: LogFile, position: int, stop: int, *, checks_crc: bool) -> bool:
    found = check_at(file, position, checks_crc=checks_crc, limit=stop)
    if found == Verdict.BLANK:
        return size_at(file.window(position, _MAGIC_BYTES), file, position) == file.size - position
    return found > 0


_ENTRY: Final = struct.Struct(">qi")
_MOST_QUEUES: Final = 64
_NEAR_BYTES: Final = 1 << 20
_FAR_BYTES: Final = 64 << 20


class _Entry(NamedTuple):
    log_offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int


def find_anchor(file: LogFile, start: int, queues: str) -> int | None:
    """Return the position of a record at or before ``start`` in a file, ``None`` when queues name none near it."""
    best: int | None = None
    for topic, queue_id, directory in islice(list_queues(queues), _MOST_QUEUES):
        entry = _last_before(topic, queue_id, directory, file.base_offset + start)
        position = -1 if entry is None else entry.log_offset - file.base_offset
        if entry is None or position < max(0, start - _FAR_BYTES) or (best is not None and position <= best):
            continue
        if _is_there(file, position, entry):
            best = position
            if start - best <= _NEAR_BYTES:
                break
    return best


def has_queue_entry(file: LogFile, position: int, queues: str) -> bool:
    """Tell whether the entry of the record at a position is there; that of one which a cut left over is not."""
    record = record_at(file, position)
    entry_at = record.queue_offset * ENTRY_BYTES
    directory = os.path.join(queues, record.topic, str(record.queue_id))
    names = [name for name in list_names(directory) if name.isdecimal() and int(name) <= entry_at]
    if not names:
        return False
    try:
        with open(os.path.join(directory, names[-1]), "rb") as entries:
            entries.seek(entry_at - int(names[-1]))
            data = entries.read(_ENTRY.size)
    except OSError:  # a broker deleted it just now
        return False
    return data == _ENTRY.pack(file.base_offset + position, record.total_size)


def list_queues(directory: str) -> Iterator[tuple[str, int, str]]:
    """Yield topic, id and directory of each queue below a directory of queues."""
    for topic in list_names(directory):
        for queue in list_names(os.path.join(directory, topic)):
            if queue.isascii() and queue.isdigit():
                yield topic, int(queue), os.path.join(directory, topic, queue)


def _last_before(topic: str, queue_id: int, directory: str, log_offset: int) -> _Entry | None:
    """Return the last entry of a queue whose record begins at or before a place of the log."""
    for name in reversed([name for name in list_names(directory) if name.isdecimal()]):
        try:
            descriptor = os.open(os.path.join(directory, name), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            found = _search(descriptor, os.fstat(descriptor).st_size // ENTRY_BYTES, log_offset)
        finally:
            os.close(descriptor)
        if found is not None:
            number, at, size = found
            return _Entry(at, size, topic, queue_id, int(name) // ENTRY_BYTES + number)
    return None


def _search(descriptor: int, count: int, log_offset: int) -> tuple[int, int, int] | None:
    low, found = 0, None
    while low < count:
        middle = (low + count) // 2
        data = os.pread(descriptor, _ENTRY.size, middle * ENTRY_BYTES)
        at, size = _ENTRY.unpack(data) if len(data) == _ENTRY.size else (0, 0)
        if size > 0 and at <= log_offset:
            low, found = middle + 1, (middle, at, size)
        else:
            count = middle
    return found


def _is_there(file: LogFile, position: int, entry: _Entry) -> bool:
    if position + entry.size > file.size or check_at(file, position) != entry.size:
        return False
    record = record_at(file, position)
    return (record.topic, record.queue_id, record.queue_offset) == (entry.topic, entry.queue_id, entry.queue_offset)


STRETCH_BYTES: Final = 5 << 20
_OFFSET_AT: Final = 28
_OFFSET_BYTES: Final = 8


def find_first_record(
    file: LogFile, start: int, end: int, queues: str | None = None, stretch_bytes: int = STRETCH_BYTES
) -> int:
    """Return where the first record at or behind ``start`` begins in the chain of a file that ends at ``end``.

    ``end`` where there is none. ``queues`` is the directory of the store's queues, if it may be looked at.
    """
    if not start:
        return 0
    if queues is not None and (anchor := find_anchor(file, start, queues)) is not None:
        return _walk(file, anchor, start, end)
    if start > stretch_bytes and (found := _find_in_stretch(file, start - stretch_bytes, start, end)) is not None:
        return found
    return _walk(file, 0, start, end)


def _walk(file: LogFile, position: int, start: int, end: int) -> int:
    while position < start:
        walk = RecordWalk(file, position, start, HEADS_ONLY, end)
        for _ in walk:
            pass
        position = walk.position
        if walk.verdict is Verdict.BLANK:
            return end
        if walk.verdict is not None:
            behind = find_next_sound(file, position, end, walk.verdict)
            position = end if behind is None else behind
    return position


def _find_in_stretch(file: LogFile, first: int, start: int, end: int) -> int | None:
    """Return the first record from ``start`` on if nothing else from ``first`` to there could be one."""
    anchor = find_sound_record(file, first, start, end)
    if anchor is None:
        return None
    chain = RecordWalk(file, anchor, start, HEADS_ONLY, end)
    parts = [block.positions + (block.segment.base_offset - file.base_offset) for block in chain]
    if chain.verdict is not None or _has_rivals(file, np.concatenate(parts), chain.position):
        return None
    return chain.position


def _has_rivals(file: LogFile, positions: Longs, stop: int) -> bool:
    """Tell whether anything else up to ``stop`` looks like a record than those of a chain."""
    for found in find_candidates(file, int(positions[0]), stop):
        nearest = positions[np.minimum(np.searchsorted(positions, found), len(positions) - 1)]
        if any(_names_its_place(file, at) for at in found[found != nearest].tolist()):
            return True
    return False


def _names_its_place(file: LogFile, position: int) -> bool:
    """Tell whether what looks like a record at a position names its own place in the log."""
    at = position + _OFFSET_AT
    window = file.window(position, min(_OFFSET_AT + _OFFSET_BYTES, file.size - position))
    at -= window.base_offset - file.base_offset
    return int.from_bytes(window.view[at : at + _OFFSET_BYTES], "big") == file.base_offset + position
