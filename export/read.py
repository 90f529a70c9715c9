"""Reads splits of a log into record batches, and counts what it meets on the way.

    Split -> blocks of checked records -> selection -> columns -> inner batches -> tags and keys -> record batch

A reading whose chain of records breaks before the end of its split has met damage. After the rows before it were
handed out, it raises, or (``Reading`` with ``damages``) notes in the report where and why it stopped, and goes on with
the next store.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from ..common.errors import StoreDamagedError
from ..common.sysflag import INNER_BATCH
from ..common.walk import Verdict
from ..store.block import Block, Longs
from ..store.blockscan import Scan, ScanLimits
from .columns import Inflated, Rows, inflate_in_pieces
from .innerbatch import AnyRows, Batches, count_messages, find_batches, unwrap
from .plan import Split, plan_stores
from .report import BlockCount, Report, StoreTally
from .schema import SCHEMA, pick_columns
from .segment import topics as topics_of
from .selection import Reason, Selection
from .tail import LogStop


@dataclass(frozen=True)
class ReadOptions:
    """Which messages and columns are read, and how."""

    selection: Selection = field(default_factory=Selection)
    schema: pa.Schema = SCHEMA
    limits: ScanLimits = field(default_factory=ScanLimits)


@dataclass(frozen=True)
class SplitReader:
    """Reads splits of one store; counts into ``tally`` where there is one, and tells ``advance`` the bytes read."""

    options: ReadOptions = field(default_factory=ReadOptions)
    tally: StoreTally | None = None
    advance: Callable[[int], object] | None = None

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Yield the wanted messages in log order.

        Raises:
            StoreDamagedError: A bad record; the message names file, position and reason.
            StoreError: The file cannot be read.
        """
        scan = Scan(split.open(), split.start, split.stop, self.options.limits)
        position = split.start
        for block in scan:
            yield from self._read_block(block)
            self._count_bytes(scan.position - position)
            position = scan.position
        damage = find_damage(split, scan)
        if damage is not None:
            raise damage
        self._count_bytes(split.stop - position)
        if self.tally is not None:
            self.tally.blanks += scan.verdict is Verdict.BLANK

    def _read_block(self, block: Block) -> Iterator[pa.RecordBatch]:
        codes, topics = topics_of(block)
        reasons = self.options.selection.judge(block, codes, topics)
        batches = find_batches(block)
        count = None
        if self.tally is not None:
            count = BlockCount(self.tally, block, codes, topics)
            count.count(reasons, count_messages(block, batches))
            self.tally.records += len(block)
            self.tally.checked_bodies += len(block) if self.options.limits.checks_crc else 0
        wanted = np.flatnonzero(reasons == Reason.WANTED)
        if len(wanted):
            chosen = block if len(wanted) == len(block) else block.select(wanted)
            for piece, inflated in self._pieces(chosen):
                self._count_unreadable(piece, inflated, batches)
                records, wanted = wanted[: len(piece)], wanted[len(piece) :]
                rows = unwrap(Rows(piece, inflated, (codes[records], topics)), batches)
                batch = self._narrow(rows, _to_batch(rows, self.options.schema), count, records)
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

    def _narrow(self, rows: AnyRows, batch: pa.RecordBatch, count: BlockCount | None, records: Longs) -> pa.RecordBatch:
        """Drop the rows whose tags or keys are not wanted."""
        selection = self.options.selection
        if not selection.tags and not selection.keys:
            return batch
        reasons = selection.judge_words(rows.column("tags"), rows.column("keys"))
        if count is not None:
            for reason in (Reason.TAG, Reason.KEY):
                count.leave_out(reason, records[rows.owners[reasons == reason]])
        return batch.filter(pa.array(reasons == Reason.WANTED))

    def _count_bytes(self, size: int) -> None:
        if self.tally is not None:
            self.tally.log_bytes += size
        if self.advance is not None:
            self.advance(size)


@dataclass
class Reading:
    """One reading of planned splits, with the report that comes of it.

    Without ``damages`` (``Plan.damages``) it raises what it meets; with them, damage ends the reading of its store.
    ``ends`` (``Plan.ends``) are for the report.
    """

    splits: Sequence[Split]
    options: ReadOptions = field(default_factory=ReadOptions)
    advance: Callable[[int], object] | None = None
    damages: Mapping[str, StoreDamagedError] | None = None
    ends: Mapping[str, LogStop] = field(default_factory=dict[str, LogStop])
    report: Report = field(init=False)

    def __post_init__(self) -> None:
        self.report = Report(checks_crc=self.options.limits.checks_crc)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the wanted messages, store by store in log order; raises what ``SplitReader.read`` does."""
        for split in self.splits:
            tally = self.report.of_store(split.store)
            reader = SplitReader(self.options, tally, self.advance)
            if self.damages is None:
                yield from reader.read(split)
            elif tally.damage is None:
                yield from self._read_prefix(reader, split, tally)
        for store, damage in (self.damages or {}).items():
            tally = self.report.of_store(store)
            tally.damage = tally.damage or damage
        for store, end in self.ends.items():
            tally = self.report.of_store(store)
            tally.end = end if tally.damage is None else None

    def _read_prefix(self, reader: SplitReader, split: Split, tally: StoreTally) -> Iterator[pa.RecordBatch]:
        try:
            yield from reader.read(split)
        except StoreDamagedError as damage:
            tally.damage = damage

    @property
    def size_bytes(self) -> int:
        """Bytes of log that are read; what ``advance`` is told adds up to it."""
        return sum(len(split) for split in self.splits)


def count_stores(stores: Iterable[str], selection: Selection, segment_bytes: int | None = None) -> Report:
    """Return the report of a reading that keeps no rows; raises what ``plan_stores`` and ``SplitReader.read`` do."""
    options = ReadOptions(selection, pick_columns(["queueOffset"]))
    reading = Reading(plan_stores(stores, segment_bytes), options)
    for _ in reading:
        pass
    return reading.report


def find_damage(split: Split, scan: Scan) -> StoreDamagedError | None:
    """Return what kept a finished scan from the end of its split."""
    if scan.verdict is Verdict.BLANK if split.ends_in_blank else scan.position == split.stop:
        return None
    reason = "the file does not end in a blank" if scan.verdict is None else scan.verdict.reason
    return StoreDamagedError(
        f"{split.path} at position {scan.position}: {reason}", path=split.path, position=scan.position
    )


def _to_batch(rows: AnyRows, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([rows.column(name) for name in schema.names], schema=schema)
