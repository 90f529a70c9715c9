"""A walk over the records of a log in blocks, which ends where the walk from record to record would (``scan``)."""

from collections.abc import Iterator

import numpy as np

from ...common.record import has_sealed_crc
from ...common.walk import BLANK_BYTES, Verdict
from .blockscan import Scan, ScanLimits
from .log_end import Walk
from .record_blocks import Block, SegmentBytes, count_leading

_BLOCK_RECORDS = 16384
_BLOCK_BYTES = 16 * 1024 * 1024


class BlockWalk(Walk):
    """Iterates blocks of records; ``stop`` is set when the iteration has ended."""

    def blocks_from(self, log_offset: int) -> Iterator[Block]:
        """Walk from a position that a record or a file begins at."""
        self.stop = None
        limits = ScanLimits(self._checks_crc, _BLOCK_RECORDS, _BLOCK_BYTES, reserved_bytes=BLANK_BYTES)
        for number, segment in enumerate(self._segments):
            if log_offset >= segment.base_offset + segment.size:
                continue
            whole = SegmentBytes(segment.path, segment.base_offset, self._view(segment))
            scan = Scan(whole, max(0, log_offset - segment.base_offset), whole.size, limits)
            for block in scan:
                yield from self._whole_records(number, block)
                if self.stop is not None:
                    return
            if self._ends(number, scan.position, Verdict.BLANK if scan.verdict is None else scan.verdict):
                return
        self._end_full()

    def _whole_records(self, number: int, block: Block) -> Iterator[Block]:
        """Yield the block up to a record without its seal, or one that was cut short."""
        if self._demands_seals and (count := count_leading(_has_seal(block))) < len(block):
            self._ends(number, int(block.positions[count]), Verdict.SEAL)
            block = block.select(slice(count))
        elif self._ends_in_zero(block) and self._is_cut_short(
            number, int(block.positions[-1]), int(block.heads["size"][-1])
        ):
            block = block.select(slice(len(block) - 1))
        if len(block):
            yield block

    def _ends_in_zero(self, block: Block) -> bool:
        size = int(block.properties_bytes[-1])
        return size > 0 and block.segment.view[int(block.properties_at[-1]) + size - 1] == 0


def _has_seal(block: Block) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    view = block.segment.view
    ends = (block.properties_at + block.properties_bytes).tolist()
    sealed = [has_sealed_crc(view[start:end]) for start, end in zip(block.positions.tolist(), ends, strict=True)]
    return np.array(sealed, bool)
