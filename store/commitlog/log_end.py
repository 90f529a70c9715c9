"""A walk over the records of a log, with the strict check, and what ended it.

Rules (store.md §7.2, §7.6):

- The walk goes from record to record, over the blank at a file's end into the next file.
- It ends at the first position that holds no sound record. Zeros there, or no next file, are the regular end of a
  log; other bytes are a torn tail, or damage. Which of both, ``logtail`` tells: is there a record behind?
- No checksum covers the properties. A writer writes upwards, so when those of the last record end in zeros, the record
  did not arrive whole.
- With ``demands_seals`` each record must end in its checksum property, and that of its body does not count
  (``forceVerifyPropCRC``, store.md §2.8).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ...common.record import MAGIC_V1, MAGIC_V2, decode_record, has_sealed_crc
from ...common.walk import Verdict, check_record
from ..files.maps import check_map
from ..files.segments import SegmentFile

_CHUNK = 1 << 20
_CUT_SHORT = "the properties of the record did not arrive whole"

View = Callable[[SegmentFile], memoryview]


class Stop(NamedTuple):
    """Where a walk ended and why; ``log_offset`` is the end of the valid records."""

    path: str
    position: int
    log_offset: int
    reason: str
    is_torn: bool

    def __str__(self) -> str:
        return f"{self.path} at position {self.position}: {self.reason}"


class Walk:
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
