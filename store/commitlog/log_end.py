"""Where the records of a log end, what lies behind that, and how it is cut off; recovery and exports find the same end.

Rules of the walk (store.md §7.2, §7.6):

- The walk goes from record to record, over the blank at a file's end into the next file.
- It ends at the first position that holds no sound record. Zeros there, or no next file, are the regular end of a
  log; other bytes are a torn tail, or damage. Which of both, ``find_valid`` tells: is there a record behind?
- No checksum covers the properties. A writer writes upwards, so when those of the last record end in zeros, the record
  did not arrive whole.
- With ``demands_seals`` each record must end in its checksum property, and that of its body does not count
  (``forceVerifyPropCRC``, store.md §2.8).

Rules of what lies behind (``Validity``; store.md §7.6, §15.2):

- A sound record behind the end is valid data unless it is older than the last one before the end: such a one is what
  the Java broker leaves lying when it cuts its log after a crash and goes on writing.
- After an unclean stop, records that were stored after the last flush of the log (``sure_at_ms``) promise nothing: the
  disk may have kept them and lost others before them. Without a checkpoint everything counts as flushed.

Rules of the cut (store.md §7.6):

- Java trusts whatever chain of records follows, so bytes behind the end are zeroed before anything is written.
- A repair gives up what lies behind damage. It says how much that is, one line for each file.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from ...common.errors import StoreDamagedError
from ...common.record import BLANK_BYTES, MAGIC_V1, MAGIC_V2, Verdict, check_record, decode_record, has_sealed_crc
from ..files.files import Files, check_map, zero_range
from ..files.segments import SegmentFile, repair_command

_CUT_SHORT = "the properties of the record did not arrive whole"

View = Callable[[SegmentFile], memoryview]
_MAGICS: Final = (MAGIC_V1.to_bytes(4, "big"), MAGIC_V2.to_bytes(4, "big"))
_MAGIC_START: Final = _MAGICS[0][:3]
_CHUNK: Final = 1 << 20
_log = logging.getLogger(__name__)


class Stop(NamedTuple):
    """Where a walk ended and why; ``log_offset`` is the end of the valid records."""

    path: str
    position: int
    log_offset: int
    reason: str
    is_torn: bool

    def __str__(self) -> str:
        return f"{self.path} at position {self.position}: {self.reason}"


class LogWalk:
    """Iterates (log offset, record bytes); ``stop`` is set when the iteration has ended."""

    def __init__(
        self, segments: Sequence[SegmentFile], view: View, *, checks_crc: bool = True, demands_seals: bool = False
    ) -> None:
        self._segments = segments
        self._view = view
        self._checks_crc = checks_crc and not demands_seals
        self._demands_seals = demands_seals
        self.stop: Stop | None = None

    def __iter__(self) -> Iterator[tuple[int, memoryview]]:
        """Walk from the first file."""
        return self.walk_from(self._segments[0].base_offset if self._segments else 0)

    def walk_from(self, log_offset: int) -> Iterator[tuple[int, memoryview]]:
        """Walk from a position that a record or a file begins at."""
        self.stop = None
        for number, segment in enumerate(self._segments):
            if log_offset >= segment.base_offset + segment.size:
                continue
            view, base = self._view(segment), segment.base_offset
            position = max(0, log_offset - base)
            while (size := self._check(view, position, base)) > 0:
                record = view[position : position + size]
                if not record[-1] and self._is_cut_short(number, position, size):
                    return
                yield base + position, record
                position += size
            if self._ends(number, position, Verdict(size)):
                return
        self._end_full()

    def _ends(self, number: int, position: int, verdict: Verdict) -> bool:
        """Tell whether the walk ends at what is no record, and where it goes on else: at the next file's start."""
        if verdict == Verdict.BLANK and number < len(self._segments) - 1:
            return False
        segment = self._segments[number]
        end = segment.base_offset + (segment.size if verdict == Verdict.BLANK else position)
        self.stop = Stop(segment.path, position, end, verdict.reason, verdict.is_damage)
        return True

    def _end_full(self) -> None:
        last = self._segments[-1] if self._segments else SegmentFile("", 0, 0)
        self.stop = Stop(last.path, last.size, last.base_offset + last.size, "the last file is full", is_torn=False)

    def _check(self, view: memoryview, position: int, base_offset: int) -> int:
        size = check_record(view, position, base_offset + position, checks_crc=self._checks_crc)
        if size > 0 and self._demands_seals and not has_sealed_crc(view[position : position + size]):
            return Verdict.SEAL
        return size

    def _is_cut_short(self, number: int, position: int, size: int) -> bool:
        """Tell whether zeros at the end of the properties are what never arrived: no record follows then."""
        segment = self._segments[number]
        view = self._view(segment)
        if not decode_record(view, position).property_text:
            return False
        following = self._check(view, position + size, segment.base_offset)
        if following == Verdict.BLANK and number + 1 < len(self._segments):
            behind = self._segments[number + 1]
            following = self._check(self._view(behind), 0, behind.base_offset)
        if following <= 0:
            log_offset = segment.base_offset + position
            self.stop = Stop(segment.path, position, log_offset, _CUT_SHORT, is_torn=True)
        return following <= 0


def find_record(view: memoryview, base_offset: int, start: int) -> int | None:
    """Return the position of the first sound record at or behind ``start`` in a file, reading past what is none."""
    for magic in (MAGIC_V1.to_bytes(4, "big"), MAGIC_V2.to_bytes(4, "big")):
        for chunk_at in range(start, len(view), _CHUNK):
            check_map(view)
            chunk = bytes(view[chunk_at : chunk_at + _CHUNK + 8])
            at = chunk.find(magic, 4)
            while at >= 0:
                position = chunk_at + at - 4
                if check_record(view, position, base_offset + position) > 0:
                    return position
                at = chunk.find(magic, at + 1)
    return None


class Validity(Struct, frozen=True):
    """Which records behind the end of a log are valid data, by their store time."""

    last_at_ms: int
    sure_at_ms: int | None = None

    def covers(self, stored_at_ms: int) -> bool:
        """Tell whether cutting off a record of that time would lose a message."""
        return stored_at_ms >= self.last_at_ms and (self.sure_at_ms is None or stored_at_ms <= self.sure_at_ms)


def find_valid(
    files: Files,
    segment: SegmentFile,
    view: memoryview,
    start: int,
    validity: Validity,
    *,
    reserved_bytes: int = BLANK_BYTES,
) -> int | None:
    """Return the log offset of the first record at or behind ``start`` in a file that must not be lost."""
    for position in _candidates(files, segment, view, start):
        log_offset = segment.base_offset + position
        is_record = check_record(view, position, log_offset, reserved_bytes=reserved_bytes) > 0
        if is_record and validity.covers(decode_record(view, position).stored_at_ms):
            return log_offset
    return None


def _candidates(files: Files, segment: SegmentFile, view: memoryview, start: int) -> Iterator[int]:
    """Yield the positions behind which a magic stands, in the parts of the file that are written."""
    descriptor = files.open(segment.path)
    try:
        position = start
        while position < len(view):
            data_at = files.next_data(descriptor, position)
            if data_at is None:
                return
            position = max(position, data_at)
            check_map(view)
            chunk = bytes(view[position : position + _CHUNK + 8])
            at = chunk.find(_MAGIC_START, 4)
            while at >= 0:
                if chunk[at : at + 4] in _MAGICS:
                    yield position + at - 4
                at = chunk.find(_MAGIC_START, at + 1)
            position += _CHUNK
    finally:
        files.close(descriptor)


def damaged(stop: Stop, store: str) -> StoreDamagedError:
    """Return the error that says where the log of a store is damaged, and how to go on."""
    return StoreDamagedError(
        f"{stop.path} is damaged at position {stop.position}, before valid data: {stop.reason}",
        path=stop.path,
        position=stop.position,
        way_on=f"{repair_command(store)}, or a start with --repair, goes on without what lies behind",
    )


def cut_log(files: Files, segments: Sequence[SegmentFile], end: int) -> list[SegmentFile]:
    """Make the log end at a position; return the files that are left (raises ``OSError``)."""
    kept: list[SegmentFile] = []
    for segment in segments:
        if segment.base_offset >= end:
            files.unlink(segment.path)
            continue
        if segment.base_offset + segment.size > end:
            _zero_tail(files, segment, end - segment.base_offset)
        kept.append(segment)
    return kept


def give_up(files: Files, segments: Sequence[SegmentFile], damage: StoreDamagedError) -> list[SegmentFile]:
    """Cut the log at the damage and say what goes; return the files that are left.

    Raises:
        StoreDamagedError: The damage is none that can be cut off.
        OSError: The disk failed.
    """
    hit = next((one for one in segments if one.path == damage.path), None)
    if hit is None:
        raise damage
    _log.warning("%s", damage.finding)
    end = hit.base_offset + damage.position
    for segment in segments:
        position = max(0, end - segment.base_offset)
        if position < segment.size:
            lost = written_bytes(files, segment, position)
            what = "removing" if position == 0 else f"truncating at position {position}"
            _log.warning("%s: %s, %d written bytes are lost", segment.path, what, lost)
    return cut_log(files, segments, end)


def written_bytes(files: Files, segment: SegmentFile, position: int) -> int:
    """Return how many bytes from a position of a file on lie before its last byte that is not zero."""
    descriptor = files.open(segment.path)
    try:
        end = segment.size
        while end > position:
            start = max(position, end - (1 << 20))
            data_at = files.next_data(descriptor, start)
            if data_at is not None and data_at < end:
                left = files.pread(descriptor, end - start, start).rstrip(b"\0")
                if left:
                    return start + len(left) - position
            end = start
        return 0
    finally:
        files.close(descriptor)


def _zero_tail(files: Files, segment: SegmentFile, position: int) -> None:
    descriptor = files.open(segment.path, writable=True)
    try:
        zero_range(files, descriptor, position, segment.size)
    finally:
        files.close(descriptor)
