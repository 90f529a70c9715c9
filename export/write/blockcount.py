"""Counts the records of a block by topic and queue.

Rule: the work per record is numpy's; Python's is per queue, and per run of consecutive queue offsets.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...store.commitlog.record_blocks import Block, Longs, Mask
from ..plan.selection import Codes, Reason
from ..report.tally import QueueTally, StoreTally

_QUEUE_ID_BITS: Final = 32
_QUEUE_ID_MASK: Final = 0xFFFFFFFF
_FEW: Final = 1 << 16


class BlockCount:
    """Sorts the records of a block by queue, once for all that is counted of them."""

    def __init__(self, tally: StoreTally, block: Block, topic_codes: Longs, topics: Sequence[str]) -> None:
        queue_ids = block.number("queue_id")
        self._block = block
        self._sorted = _sort(_number_queues(topic_codes, queue_ids, len(topics)))
        rows = self._sorted.firsts
        codes: list[int] = topic_codes[rows].tolist()
        names = zip(codes, queue_ids[rows].tolist(), strict=True)
        self._queues: list[QueueTally] = [tally.queue(topics[code], queue_id) for code, queue_id in names]

    def count(self, reasons: Codes, messages: Longs) -> None:
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

    def _per_queue(self, chosen: Mask, messages: Longs) -> Iterator[tuple[QueueTally, int]]:
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
    coded = pa.array(keys).dictionary_encode()
    return np.asarray(coded.indices).astype(np.uint16 if len(coded.dictionary) <= _FEW else np.int64)
