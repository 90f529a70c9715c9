"""Turns blocks of records into record batches, and counts what is in them.

block -> selection -> columns -> inner batches -> tags and keys -> record batch

Without inner batches, tags and keys are judged before bodies and other columns are looked at.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from ...common.sysflag import INNER_BATCH
from ...store.commitlog.record_blocks import Block, Longs, ScanLimits
from ...store.files.files import check_map
from ..columns.columns import Inflated, Rows, inflate_in_pieces
from ..columns.innerbatch import AnyRows, Batches, count_messages, find_batches, unwrap
from ..columns.schema import SCHEMA
from ..columns.systemcolumns import DEFAULT_DELAYS_MS
from ..plan.segment import topics as topics_of
from ..plan.selection import Codes, Reason, Selection
from ..report.tally import StoreTally
from .blockcount import BlockCount


@dataclass(frozen=True)
class ReadOptions:
    """Which messages and columns are read, and how; ``delays_ms`` are the delay levels of the broker."""

    selection: Selection = field(default_factory=Selection)
    schema: pa.Schema = SCHEMA
    limits: ScanLimits = field(default_factory=ScanLimits)
    skips_damage: bool = False
    delays_ms: Sequence[int] = DEFAULT_DELAYS_MS


@dataclass(frozen=True)
class BlockReader:
    """Reads blocks; counts into ``tally`` where there is one."""

    options: ReadOptions
    tally: StoreTally | None = None

    def read(self, block: Block, batches: Batches | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the wanted messages of a block; ``batches`` are its inner batches where they are known already."""
        codes, topics = topics_of(block)
        reasons = self.options.selection.judge(block, codes, topics)
        batches = find_batches(block) if batches is None else batches
        count = None
        if self.tally is not None:
            count = BlockCount(self.tally, block, codes, topics)
            count.count(reasons, count_messages(block, batches))
            self.tally.records += len(block)
            self.tally.checked_bodies += len(block) if self.options.limits.checks_crc else 0
        wanted = np.flatnonzero(reasons == Reason.WANTED)
        is_plain = not (block.number("sys_flag") & INNER_BATCH).any()
        if len(wanted) and is_plain:
            wanted = self._narrow_records(block, (codes, topics), wanted, count)
        if len(wanted):
            chosen = block if len(wanted) == len(block) else block.select(wanted)
            for piece, inflated in self._pieces(chosen):
                check_map(block.segment.view)
                self._count_unreadable(piece, inflated, batches)
                records, wanted = wanted[: len(piece)], wanted[len(piece) :]
                rows = unwrap(Rows(piece, inflated, (codes[records], topics), self.options.delays_ms), batches)
                batch = self._narrow(rows, count, records, is_judged=is_plain)
                if self.tally is not None:
                    self.tally.delivered_rows += batch.num_rows
                yield batch

    def _pieces(self, block: Block) -> Iterable[tuple[Block, Inflated]]:
        return inflate_in_pieces(block) if "body" in self.options.schema.names else [(block, {})]

    def _count_unreadable(self, block: Block, inflated: Inflated, batches: Batches) -> None:
        if self.tally is not None:
            rows = np.flatnonzero(block.number("sys_flag") & INNER_BATCH).tolist()
            unread = {row for row in rows if int(block.positions[row]) not in batches}
            unread |= {row for row, body in inflated.items() if body is None}
            self.tally.unreadable_bodies += len(unread)

    def _narrow_records(
        self, block: Block, topics_by_row: tuple[Longs, list[str]], wanted: Longs, count: BlockCount | None
    ) -> Longs:
        """Return the records whose tags and keys are wanted, too."""
        selection, (codes, topics) = self.options.selection, topics_by_row
        if not selection.tags and not selection.keys:
            return wanted
        reasons = selection.judge_rows(Rows(block.select(wanted), {}, (codes[wanted], topics)))
        if reasons is None:
            return wanted
        _leave_out(count, reasons, wanted)
        return wanted[reasons == Reason.WANTED]

    def _narrow(self, rows: AnyRows, count: BlockCount | None, records: Longs, *, is_judged: bool) -> pa.RecordBatch:
        """Return the batch, without the rows whose tags, keys or offsets are not wanted."""
        batch = _to_batch(rows, self.options.schema)
        reasons = None if is_judged else self.options.selection.judge_rows(rows)
        if reasons is None:
            if count is not None:
                count.deliver(records[rows.owners], np.asarray(rows.column("queueOffset")))
            return batch
        kept = reasons == Reason.WANTED
        _leave_out(count, reasons, records[rows.owners])
        if count is not None:
            count.deliver(records[rows.owners[kept]], np.asarray(rows.column("queueOffset"))[kept])
        return batch.filter(pa.array(kept))


def _leave_out(count: BlockCount | None, reasons: Codes, records: Longs) -> None:
    """Count the rows that only their messages exclude; ``records`` are those that they are from."""
    if count is not None:
        for reason in (Reason.TAG, Reason.KEY, Reason.OFFSET):
            count.leave_out(reason, records[reasons == reason])


def _to_batch(rows: AnyRows, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([rows.column(name) for name in schema.names], schema=schema)
