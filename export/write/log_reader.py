"""Reads splits of a log into record batches, and counts by topic and queue what it meets on the way.

    Split -> blocks of checked records -> selection -> columns -> inner batches -> tags and keys -> record batch

Rules:

- A reading whose chain of records breaks before the end of its split has met damage. After the rows before it were
  handed out, it raises, or (``LogReader`` with ``damages``) notes in the report where and why it stopped, and goes on
  with the next store.
- Without inner batches, tags and keys are judged before bodies and other columns are looked at.
- The work per record is numpy's; Python's is per queue, and per run of consecutive queue offsets.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...common.errors import StoreDamagedError
from ...common.message import INNER_BATCH
from ...common.record import Verdict
from ...store.commitlog.record_blocks import Block, Longs, Mask, ScanLimits
from ...store.files.files import check_map, name_file
from ..columns.record_columns import (
    AnyRows,
    Batches,
    Inflated,
    RecordRows,
    block_topics,
    count_messages,
    find_batches,
    inflate_in_pieces,
    unwrap,
)
from ..columns.schema import SCHEMA, pick_columns
from ..columns.system_columns import DEFAULT_DELAYS_MS
from ..plan.log_end import LogStop
from ..plan.read_plan import PlanOptions, plan_stores
from ..plan.selection import Reason, ReasonCodes, Selection
from ..plan.split import Skip, Split, SplitWalk
from ..report.counters import QueueCounters, SplitRead, StoreCounters
from ..report.report import Report

_QUEUE_ID_BITS: Final = 32
_QUEUE_ID_MASK: Final = 0xFFFFFFFF
_FEW: Final = 1 << 16


@dataclass(frozen=True)
class ReadOptions:
    """Which messages and columns are read, and how; ``delays_ms`` are the delay levels of the broker."""

    selection: Selection = field(default_factory=Selection)
    schema: pa.Schema = SCHEMA
    limits: ScanLimits = field(default_factory=ScanLimits)
    skips_damage: bool = False
    delays_ms: Sequence[int] = DEFAULT_DELAYS_MS


@dataclass(frozen=True)
class SplitReader:
    """Reads splits of one store; counts into ``counters`` where there is one, and tells ``advance`` the bytes read."""

    options: ReadOptions = field(default_factory=ReadOptions)
    counters: StoreCounters | None = None
    advance: Callable[[int], object] | None = None

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Yield the wanted messages in log order.

        Raises:
            StoreDamagedError: A bad record, or a file that was cut; the message names file, place and reason.
            StoreError: The file cannot be read.
        """
        return name_file(split.path, self._read(split))

    def _read(self, split: Split) -> Iterator[pa.RecordBatch]:
        started, position = time.perf_counter(), split.start
        scan = SplitWalk(split, self.options.limits, self._note_skip if self.options.skips_damage else None)
        blocks = BlockReader(self.options, self.counters)
        try:
            for block in scan:
                yield from blocks.read(block)
                self._count_bytes(min(scan.position, split.stop) - position)
                position = max(position, min(scan.position, split.stop))
        finally:
            if self.counters is not None:
                self.counters.seconds += time.perf_counter() - started
                self.counters.crc_failures += scan.verdict is Verdict.BODY_CRC
        self._count_bytes(split.stop - position)
        if self.counters is not None:
            self.counters.blanks += scan.verdict is Verdict.BLANK
            self.counters.splits.append(SplitRead(split.path, split.start, split.stop, scan.began, scan.ended))

    def _note_skip(self, skip: Skip) -> None:
        if self.counters is not None:
            self.counters.skip(skip.path, skip.position, skip.size_bytes, skip.reason)
            if skip.queue is not None:
                self.counters.fail_crc(*skip.queue)

    def _count_bytes(self, size: int) -> None:
        if self.counters is not None:
            self.counters.log_bytes += size
        if self.advance is not None:
            self.advance(size)


@dataclass
class LogReader:
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
            if self.report.of_store(split.store).damage is None:
                yield from self._read_split(split)
        for store, damage in (self.damages or {}).items():
            counters = self.report.of_store(store)
            counters.damage = counters.damage or damage
        for store, end in self.ends.items():
            counters = self.report.of_store(store)
            counters.end = end if counters.damage is None else None

    def _read_split(self, split: Split) -> Iterator[pa.RecordBatch]:
        counters = StoreCounters(split.store)
        try:
            yield from SplitReader(self.options, counters, self.advance).read(split)
        except StoreDamagedError as damage:
            if self.damages is None:
                raise
            counters.damage = damage
        finally:
            self.report.add([counters])

    @property
    def size_bytes(self) -> int:
        """Bytes of log that are read; what ``advance`` is told adds up to it."""
        return sum(len(split) for split in self.splits)


def count_stores(stores: Iterable[str], selection: Selection, segment_bytes: int | None = None) -> Report:
    """Return the report of a reading that keeps no rows; raises what ``plan_stores`` and ``SplitReader.read`` do."""
    options = ReadOptions(selection, pick_columns(["queueOffset"]))
    reading = LogReader(plan_stores(stores, PlanOptions(segment_bytes)), options)
    for _ in reading:
        pass
    return reading.report


class BlockCount:
    """Sorts the records of a block by queue, once for all that is counted of them."""

    def __init__(self, counters: StoreCounters, block: Block, topic_codes: Longs, topics: Sequence[str]) -> None:
        queue_ids = block.number("queue_id")
        self._block = block
        self._sorted = _sort(_number_queues(topic_codes, queue_ids, len(topics)))
        rows = self._sorted.firsts
        codes: list[int] = topic_codes[rows].tolist()
        names = zip(codes, queue_ids[rows].tolist(), strict=True)
        self._queues: list[QueueCounters] = [counters.queue(topics[code], queue_id) for code, queue_id in names]

    def count(self, reasons: ReasonCodes, messages: Longs) -> None:
        """Count the messages of each record for its reason, their queue offsets, and the bytes and store times."""
        for reason in map(Reason, np.flatnonzero(np.bincount(reasons)).tolist()):
            for queue, count in self._per_queue(reasons == reason, messages):
                queue.count(reason, count)
        self._count_offsets(reasons != Reason.NOT_QUEUED, messages)
        self._count_heads()

    def leave_out(self, reason: Reason, records: Longs) -> None:
        """Turn a row of each of these records, which may repeat, into a message that was left out."""
        messages = np.bincount(records, minlength=len(self._block))
        for queue, count in self._per_queue(messages > 0, messages):
            queue.leave_out(reason, count)

    def deliver(self, records: Longs, offsets: Longs) -> None:
        """Note the rows that are handed out: the record of each, and its queue offset."""
        if len(records):
            is_whole = len(records) == len(self._block) and bool((records == np.arange(len(records))).all())
            by_queue = self._sorted if is_whole else _sort(self._of_record[records])
            queues = (
                self._queues if is_whole else [self._queues[self._of_record[records[row]]] for row in by_queue.firsts]
            )
            ordered = by_queue.arrange(offsets)
            firsts, lasts = np.minimum.reduceat(ordered, by_queue.starts), np.maximum.reduceat(ordered, by_queue.starts)
            sums: list[int] = np.add.reduceat(ordered, by_queue.starts).tolist()
            for queue, first, last, added in zip(queues, firsts.tolist(), lasts.tolist(), sums, strict=True):
                queue.delivered.add(first, last, added)

    def _per_queue(self, chosen: Mask, messages: Longs) -> Iterator[tuple[QueueCounters, int]]:
        counted = messages if chosen.all() else np.where(chosen, messages, 0)
        counts: list[int] = np.add.reduceat(self._sorted.arrange(counted), self._sorted.starts).tolist()
        for queue, count in zip(self._queues, counts, strict=True):
            if count:
                yield queue, count

    def _count_heads(self) -> None:
        by_queue = self._sorted
        sizes = np.add.reduceat(by_queue.arrange(self._block.number("size").astype(np.int64)), by_queue.starts)
        stored_at_ms = by_queue.arrange(self._block.number("stored_at_ms"))
        firsts = np.minimum.reduceat(stored_at_ms, by_queue.starts)
        lasts = np.maximum.reduceat(stored_at_ms, by_queue.starts)
        totals = zip(self._queues, sizes.tolist(), firsts.tolist(), lasts.tolist(), strict=True)
        for queue, size, first, last in totals:
            queue.record_bytes += size
            queue.count_times(first, last)

    def _count_offsets(self, queued: Mask, messages: Longs) -> None:
        by_queue = self._sorted
        firsts = by_queue.arrange(self._block.number("queue_offset"))
        behind = firsts + by_queue.arrange(messages)
        of_queue = self._ordered_queues
        if not queued.all():
            kept = by_queue.arrange(queued)
            firsts, behind, of_queue = firsts[kept], behind[kept], of_queue[kept]
        is_new = np.ones(len(firsts), np.bool_)
        is_new[1:] = (firsts[1:] != behind[:-1]) | (of_queue[1:] != of_queue[:-1])
        starts = np.flatnonzero(is_new)
        ends = behind[np.append(starts[1:], len(firsts))[: len(starts)] - 1]
        numbers: list[int] = of_queue[starts].tolist()
        for number, first, end in zip(numbers, firsts[starts].tolist(), ends.tolist(), strict=True):
            self._queues[number].offsets.add(first, end)

    @cached_property
    def _ordered_queues(self) -> Longs:
        """The queue of each record in the sorted order."""
        return np.repeat(np.arange(len(self._queues)), np.diff(self._sorted.starts, append=len(self._block)))

    @cached_property
    def _of_record(self) -> Longs:
        """The queue of each record."""
        if self._sorted.order is None:
            return self._ordered_queues
        found = np.empty_like(self._ordered_queues)
        found[self._sorted.order] = self._ordered_queues
        return found


class _Sorted(NamedTuple):
    """Rows by queue: their order (``None``: as they are), where each queue begins in it, and its first row."""

    order: Longs | None
    starts: Longs
    firsts: Longs

    def arrange(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Put values of all rows into the order."""
        return values if self.order is None else values[self.order]


def _sort(queues: npt.NDArray[Any]) -> _Sorted:
    """Bring rows of one queue together, which stay in log order; there is one row at least."""
    if queues[0] == queues[-1] and (queues == queues[0]).all():
        return _Sorted(None, np.zeros(1, np.int64), np.zeros(1, np.int64))
    order: Longs = np.argsort(queues, kind="stable")
    ordered = queues[order]
    starts = np.append(0, np.flatnonzero(ordered[1:] != ordered[:-1]) + 1)
    return _Sorted(order, starts, order[starts])


def _number_queues(topic_codes: Longs, queue_ids: npt.NDArray[np.int32], topics: int) -> npt.NDArray[Any]:
    """Return a number for the queue of each record; small ones, which numpy sorts in linear time, if they suffice."""
    span = int(queue_ids.max()) + 1
    if int(queue_ids.min()) >= 0 and topics * span <= _FEW:
        return (topic_codes * span + queue_ids).astype(np.uint16)
    keys = topic_codes << _QUEUE_ID_BITS | queue_ids.astype(np.int64) & _QUEUE_ID_MASK
    return np.asarray(pa.array(keys).dictionary_encode().indices)


@dataclass(frozen=True)
class BlockReader:
    """Reads blocks; counts into ``counters`` where there is one."""

    options: ReadOptions
    counters: StoreCounters | None = None

    def read(self, block: Block, batches: Batches | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the wanted messages of a block; ``batches`` are its inner batches where they are known already."""
        codes, topics = block_topics(block)
        reasons = self.options.selection.judge(block, codes, topics)
        batches = find_batches(block) if batches is None else batches
        count = None
        if self.counters is not None:
            count = BlockCount(self.counters, block, codes, topics)
            count.count(reasons, count_messages(block, batches))
            self.counters.records += len(block)
            self.counters.checked_bodies += len(block) if self.options.limits.checks_crc else 0
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
                rows = unwrap(RecordRows(piece, inflated, (codes[records], topics), self.options.delays_ms), batches)
                batch = self._narrow(rows, count, records, is_judged=is_plain)
                if self.counters is not None:
                    self.counters.delivered_rows += batch.num_rows
                yield batch

    def _pieces(self, block: Block) -> Iterable[tuple[Block, Inflated]]:
        return inflate_in_pieces(block) if "body" in self.options.schema.names else [(block, {})]

    def _count_unreadable(self, block: Block, inflated: Inflated, batches: Batches) -> None:
        if self.counters is not None:
            rows = np.flatnonzero(block.number("sys_flag") & INNER_BATCH).tolist()
            unread = {row for row in rows if int(block.positions[row]) not in batches}
            unread |= {row for row, body in inflated.items() if body is None}
            self.counters.unreadable_bodies += len(unread)

    def _narrow_records(
        self, block: Block, topics_by_row: tuple[Longs, list[str]], wanted: Longs, count: BlockCount | None
    ) -> Longs:
        """Return the records whose tags and keys are wanted, too."""
        selection, (codes, topics) = self.options.selection, topics_by_row
        if not selection.tags and not selection.keys:
            return wanted
        reasons = selection.judge_rows(RecordRows(block.select(wanted), {}, (codes[wanted], topics)))
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


def _leave_out(count: BlockCount | None, reasons: ReasonCodes, records: Longs) -> None:
    """Count the rows that only their messages exclude; ``records`` are those that they are from."""
    if count is not None:
        for reason in (Reason.TAG, Reason.KEY, Reason.OFFSET):
            count.leave_out(reason, records[reasons == reason])


def _to_batch(rows: AnyRows, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([rows.column(name) for name in schema.names], schema=schema)
