"""Walks the chain of records of a log file through its windows, in blocks of records (``store.blockscan``).

A window may end inside a record. The walk then goes on with a window that begins at that record and holds all of it,
so what ends the walk is never the end of a window.
"""

from collections.abc import Iterator

from ...common.walk import Verdict
from ...store.commitlog.record_blocks import Block, BlockScan, ScanLimits, SegmentBytes
from .logfile import LogFile, size_at

HEADS_ONLY = ScanLimits(checks_crc=False)
_LEAST_BYTES = 4_096


class Chain:
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
