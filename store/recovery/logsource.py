"""The files of a log as recovery reads them: single records, and walks that put records to queues and index.

Rules:

- A walk begins record by record and goes on in blocks, with numpy, once it has gone ``SMALL_BYTES``: a small log is
  opened without loading numpy, a large one at the speed of the checksums.
- Both ways end at the same position for the same reason, and leave the same queues and the same index.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...common.record import Record, decode_record
from ...common.walk import check_record
from ..commitlog.log_end import Stop, Walk
from ..consumequeue.appended import Appended, describe
from ..files.files import NO_ROOM
from ..files.segments import SegmentFile
from ..index.key_index import INDEX_BATCH_RECORDS, Index
from .queue_rebuild import Requeue

if TYPE_CHECKING:
    from ..commitlog.record_blocks import Block

SMALL_BYTES = 2 << 20


@dataclass(frozen=True)
class LogSource:
    """The files of a log, and how strictly their records are checked."""

    segments: Sequence[SegmentFile]
    view_of: Callable[[SegmentFile], memoryview]
    checks_crc: bool = True
    demands_seals: bool = False

    @property
    def first(self) -> int:
        """Where the log begins."""
        return self.segments[0].base_offset

    def unchecked(self) -> "LogSource":
        """Return the same log, whose checksums were looked at before."""
        return LogSource(self.segments, self.view_of, checks_crc=False)

    def record_at(self, log_offset: int) -> Record | None:
        """Return the record at a position, ``None`` when no sound one begins there."""
        segment = next((one for one in self.segments if one.holds(log_offset)), None)
        if segment is None:
            return None
        view, position = self.view_of(segment), log_offset - segment.base_offset
        is_record = check_record(view, position, log_offset, checks_crc=self.checks_crc) > 0
        return decode_record(view, position) if is_record else None

    def walk(self) -> Walk:
        """Return a walk from record to record."""
        return Walk(self.segments, self.view_of, checks_crc=self.checks_crc, demands_seals=self.demands_seals)


@dataclass
class Redispatch:
    """One walk and where its records go: to the queues, and to the index behind ``index_end``."""

    source: LogSource
    requeue: Requeue | None
    index: Index | None
    index_end: int = field(init=False)
    last_at_ms: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.index_end = self.index.end_log_offset if self.index is not None else sys.maxsize

    def run(self, start: int, end: int = sys.maxsize) -> Stop | None:
        """Walk from a record's position up to ``end``; return what ended the walk before that (raises ``OSError``)."""
        walk = self.source.walk()
        last: memoryview | None = None
        for log_offset, record in walk.walk_from(start):
            if log_offset >= end:
                return None
            if log_offset - start >= SMALL_BYTES:
                return self._run_in_blocks(log_offset, end)
            self._take(log_offset, record)
            last = record
        if last is not None:
            self.last_at_ms = decode_record(last).stored_at_ms
        return walk.stop

    def _take(self, log_offset: int, record: memoryview) -> None:
        is_indexed = log_offset <= self.index_end
        if is_indexed and (self.requeue is None or self.requeue.confirm(log_offset, record)):
            return
        appended = describe(record) if self.requeue is None else self.requeue.feed(record)
        if not is_indexed:
            self._add_to_index((appended,))

    def _run_in_blocks(self, start: int, end: int) -> Stop | None:
        from ..commitlog.blockwalk import BlockWalk

        source = self.source
        walk = BlockWalk(
            source.segments, source.view_of, checks_crc=source.checks_crc, demands_seals=source.demands_seals
        )
        for block in walk.blocks_from(start):
            taken = block.rows_before(end)
            if len(taken):
                self._take_block(taken)
            if len(taken) < len(block):
                return None
        return walk.stop

    def _take_block(self, block: "Block") -> None:
        from .block_dispatch import describe_block, requeue_block

        self.last_at_ms = int(block.heads["stored_at_ms"][-1])
        if self.requeue is not None:
            requeue_block(block, self.requeue)
        if block.end > self.index_end:
            self._add_to_index(describe_block(block.rows_behind(self.index_end)))

    def _add_to_index(self, records: Sequence[Appended]) -> None:
        assert self.index is not None, "without an index no record lies behind its end"
        self.index.pending += records
        if len(self.index.pending) >= INDEX_BATCH_RECORDS:
            try:
                self.index.build()
            except OSError as error:
                if error.errno not in NO_ROOM:  # what has no room is kept, and built when there is
                    raise
