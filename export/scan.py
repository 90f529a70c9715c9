"""Walks the chain of records of a segment, in blocks of records.

    TOTALSIZE, MAGIC -> the next record is TOTALSIZE further -> … -> a blank, zeros, or ``stop``

Rules (store.md §7.2, §7.6):

- The only loop over records reads size and magic of each; everything else is checked for a whole block at once, as
  strictly as ``common.walk.check_record`` does, which also names the reason where the chain breaks.
- A block is cut at the first record that does not pass; the walk ends there.
"""

import io
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from ..common.record import MAGIC_V1, MAGIC_V2
from ..common.walk import Verdict, check_record
from .segment import LEAST_RECORD_BYTES, Block, Longs, Mask, Segment, count_leading, measure

_SIZE_AND_MAGIC: Final = struct.Struct(">iI")


@dataclass(frozen=True)
class ScanLimits:
    """What is checked, and how large blocks become (a block holds one record at least)."""

    checks_crc: bool = True
    block_records: int = 16_384
    block_bytes: int = 16 * 1024 * 1024


class Scan:
    """The records from ``position`` to ``stop``; iterating moves ``position``.

    Afterwards ``verdict`` tells what stands at ``position``; ``None`` means that ``stop`` was reached.
    """

    def __init__(self, segment: Segment, position: int, stop: int, limits: ScanLimits) -> None:
        self.segment = segment
        self.position = position
        self.stop = stop
        self.limits = limits
        self.verdict: Verdict | None = None

    def __iter__(self) -> Iterator[Block]:
        """Yield blocks of good records; a block is yielded before what follows it is judged."""
        while self.verdict is None and self.position < self.stop:
            positions, end = _hop(self.segment, self.position, self.stop, self.limits)
            block = self._checked(positions)
            if block is None:
                self.verdict = self._judge()
                return
            self.position = end if len(block) == len(positions) else int(positions[len(block)])
            yield block

    def _checked(self, positions: Longs) -> Block | None:
        if not len(positions):
            return None
        block = measure(self.segment, positions, self.stop)
        if self.limits.checks_crc and not (good := has_body_crc(block)).all():
            block = block.select(slice(count_leading(good)))
        return block if len(block) else None

    def _judge(self) -> Verdict:
        log_offset = self.segment.base_offset + self.position
        checks_crc = self.limits.checks_crc
        view = self.segment.view[: self.stop]
        found = check_record(view, self.position, log_offset, checks_crc=checks_crc, reserved_bytes=0)
        # A size means that a writer completed the record just now; it was not complete when it was needed.
        return Verdict.TORN if found > 0 else Verdict(found)


def has_body_crc(block: Block) -> Mask:
    """Tell for each record whether its stored body has its checksum; an empty body needs none, as in Java."""
    bodies = io.BytesIO(block.bodies.buffers()[2] or b"")
    sums = map(zlib.crc32, map(bodies.read, block.body_bytes.tolist()))
    found = np.fromiter(sums, np.uint32, len(block)) & 0x7FFFFFFF
    return (found == block.number("body_crc")) | (block.body_bytes == 0)


def _hop(segment: Segment, position: int, stop: int, limits: ScanLimits) -> tuple[Longs, int]:
    """Return where records may start, and where the one after them would."""
    read, view = _SIZE_AND_MAGIC.unpack_from, segment.map
    last = min(stop - LEAST_RECORD_BYTES, position + limits.block_bytes)
    found: list[int] = []
    append = found.append
    for _ in range(limits.block_records):
        if position > last:
            break
        size, magic = read(view, position)
        if (magic != MAGIC_V1 and magic != MAGIC_V2) or size < LEAST_RECORD_BYTES:
            break
        append(position)
        position += size
    return np.array(found, np.int64), position
