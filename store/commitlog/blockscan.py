"""Walks the chain of records of a segment, in blocks of records.

    TOTALSIZE -> the next record is TOTALSIZE further -> … -> a blank, zeros, or ``stop``

Rules (store.md §7.2, §7.6):

- Records are hopped over one by one by their sizes, or many at once where equal sizes follow each other. All else
  is looked at for a whole block at once, as strictly as ``common.walk.check_record`` does, which also names the reason
  where the chain breaks. The only other loop over records works out the checksums of the bodies.
- A block is cut at the first record that does not pass; the walk ends there.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Final

import numpy as np

from ...common.walk import Verdict, check_record
from ..files.maps import check_map
from .record_blocks import (
    LEAST_RECORD_BYTES,
    Block,
    Longs,
    SegmentBytes,
    count_leading,
    has_body_crc,
    measure,
)

_SIZE: Final = struct.Struct(">i")
_LEAST_SINGLES: Final = 64
_MOST_SINGLES: Final = 2_048


@dataclass(frozen=True)
class ScanLimits:
    """What is checked, and how large blocks become (a block holds one record at least).

    ``reserved_bytes`` must follow a record in its file: ``BLANK_BYTES`` where the files are known to be whole.
    """

    checks_crc: bool = True
    block_records: int = 16_384
    block_bytes: int = 16 * 1024 * 1024
    reserved_bytes: int = 0


class Scan:
    """The records that start from ``position`` to ``stop``; iterating moves ``position``.

    They end by ``end``, which is ``stop`` unless it is given. Afterwards ``verdict`` tells what stands at
    ``position``; ``None`` means that ``stop`` was reached.
    """

    def __init__(
        self, segment: SegmentBytes, position: int, stop: int, limits: ScanLimits, end: int | None = None
    ) -> None:
        self.segment = segment
        self.position = position
        self.stop = stop
        self.end = stop if end is None else end
        self.limits = limits
        self.verdict: Verdict | None = None

    def __iter__(self) -> Iterator[Block]:
        """Yield blocks of good records; a block is yielded before what follows it is judged.

        Raises:
            StoreDamagedError: The file is a map, and somebody has cut it.
        """
        while self.verdict is None and self.position < self.stop:
            check_map(self.segment.view)
            last = min(self.stop - 1, self.end - LEAST_RECORD_BYTES, self.position + self.limits.block_bytes)
            positions, end = _hop(self.segment, self.position, last, self.limits.block_records)
            block = self._checked(positions)
            if block is None:
                self.verdict = self._judge()
                return
            self.position = end if len(block) == len(positions) else int(positions[len(block)])
            yield block

    def _checked(self, positions: Longs) -> Block | None:
        if not len(positions):
            return None
        block = measure(self.segment, positions, min(self.end, self.segment.size - self.limits.reserved_bytes))
        if self.limits.checks_crc and not (good := has_body_crc(block)).all():
            block = block.select(slice(count_leading(good)))
        return block if len(block) else None

    def _judge(self) -> Verdict:
        log_offset = self.segment.base_offset + self.position
        checks_crc, reserved_bytes = self.limits.checks_crc, self.limits.reserved_bytes
        view = self.segment.view[: self.end]
        found = check_record(view, self.position, log_offset, checks_crc=checks_crc, reserved_bytes=reserved_bytes)
        # A size means that a writer completed the record just now; it was not complete when it was needed.
        return Verdict.TORN if found > 0 else Verdict(found)


def _hop(segment: SegmentBytes, position: int, last: int, left: int) -> tuple[Longs, int]:
    """Return where ``left`` records at most may start, up to ``last``, and where the one after them would."""
    parts: list[Longs] = []
    singles = _LEAST_SINGLES
    while left and position <= last:
        run, position = _hop_evenly(segment, position, last, left)
        left -= len(run)
        singles = _LEAST_SINGLES if len(run) >= _LEAST_SINGLES else min(2 * singles, _MOST_SINGLES)
        found, position = _hop_singly(segment.view, position, last, min(left, singles))
        left -= len(found)
        parts += (run, found)
        if not len(run) and not len(found):
            break
    return np.concatenate(parts) if parts else np.array([], np.int64), position


def _hop_evenly(segment: SegmentBytes, position: int, last: int, most: int) -> tuple[Longs, int]:
    """Hop over records of one size, which are looked at together: twice as many as long as all of them have it."""
    size: int = _SIZE.unpack_from(segment.view, position)[0]
    as_stored = np.array(size, ">i4").view("=i4")
    parts: list[Longs] = []
    count = _LEAST_SINGLES
    while size >= LEAST_RECORD_BYTES and position <= last and most:
        count = min(count, most, (last - position) // size + 1)
        tried = np.arange(position, position + size * count, size)
        even = tried[: count_leading(segment.gather(tried, "=i4") == as_stored)]
        parts.append(even)
        position += size * len(even)
        most -= len(even)
        if len(even) < count:
            break
        count *= 2
    return np.concatenate(parts) if parts else np.array([], np.int64), position


def _hop_singly(view: memoryview, position: int, last: int, most: int) -> tuple[Longs, int]:
    read = _SIZE.unpack_from
    found: list[int] = []
    append = found.append
    for _ in repeat(None, most):
        if position > last:
            break
        (size,) = read(view, position)
        if size < LEAST_RECORD_BYTES:
            break
        append(position)
        position += size
    return np.array(found, np.int64), position
