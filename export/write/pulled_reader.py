"""Turns what brokers answered to pulls into record batches, many answers at once.

    answers: record | record | …     record | …     -> one buffer -> block -> selection -> columns -> record batch

Rules:

- The records of an answer are copies of those in the broker's log, so the columns are those of ``schema``, with the
  name of the broker behind them.
- Of an answer only the messages in ``[first, end)`` of its queue count: what a filter or an inner batch brings besides
  belongs to a neighbour. The record of a queue of another topic (a light queue) says nothing about its place in it.
- A record that is not whole, or a body without its checksum, is an error that names queue and offset.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from ...common.errors import RecordError
from ...common.message import INNER_BATCH
from ...common.record import BatchPart
from ...store.commitlog.record_blocks import (
    LEAST_RECORD_BYTES,
    Block,
    Longs,
    Mask,
    SegmentBytes,
    has_body_crc,
    hop_records,
    measure,
)
from ..columns.record_columns import Batches, block_topics, find_batches
from ..columns.schema import SCHEMA, pick_columns
from ..report.counters import StoreCounters
from .log_reader import BlockReader, ReadOptions

BROKER_COLUMN: Final = "brokerName"
BROKER_FIELD: Final = pa.field(BROKER_COLUMN, pa.string())
LIVE_SCHEMA: Final = pa.schema([*SCHEMA, BROKER_FIELD])


class PulledRecords(NamedTuple):
    """The records that a broker gave of a queue; those in ``[first, end)`` were asked for."""

    topic: str
    queue_id: int
    first: int
    end: int
    body: bytes


def pick_live_columns(names: Iterable[str]) -> pa.Schema:
    """Return the schema of these columns, in the given order.

    Raises:
        ConfigError: There is no such column, or one is named twice.
    """
    wanted = list(names)
    picked = pick_columns(name for name in wanted if name != BROKER_COLUMN)
    fields = iter(picked)
    return pa.schema([BROKER_FIELD if name == BROKER_COLUMN else next(fields) for name in wanted])


@dataclass(frozen=True)
class PulledReader:
    """Reads answers of one broker; counts into ``counters`` where there is one."""

    broker: str
    options: ReadOptions
    counters: StoreCounters | None = None

    def read(self, answers: Sequence[PulledRecords]) -> Iterator[pa.RecordBatch]:
        """Yield the wanted messages in the order of the answers.

        Raises:
            RecordError: An answer holds something else than sound records.
        """
        block, of_answer = _lay_out(answers)
        if self.options.limits.checks_crc and not (good := has_body_crc(block)).all():
            row = int(np.argmin(good))
            raise _unsound(answers[int(of_answer[row])], block, row - 1, "a body does not have its checksum")
        block, batches = _clip(block, of_answer, answers)
        if len(block):
            names = self.options.schema.names
            for batch in BlockReader(self._own_columns(), self.counters).read(block, batches):
                yield self._with_broker(batch) if BROKER_COLUMN in names else batch

    def _own_columns(self) -> ReadOptions:
        names = [name for name in self.options.schema.names if name != BROKER_COLUMN]
        return replace(self.options, schema=pick_columns(names))

    def _with_broker(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        schema = self.options.schema
        names = pa.array([self.broker], pa.string()).take(pa.array(np.zeros(batch.num_rows, np.int64)))
        columns = [names if name == BROKER_COLUMN else batch.column(name) for name in schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def _lay_out(answers: Sequence[PulledRecords]) -> tuple[Block, Longs]:
    """Return the records of all answers, and the number of the answer that each one came with.

    Raises:
        RecordError: An answer does not consist of records.
    """
    ends = np.cumsum([len(each.body) for each in answers], dtype=np.int64)
    joined = answers[0].body if len(answers) == 1 else b"".join([each.body for each in answers])
    segment, size = SegmentBytes("", 0, memoryview(joined)), len(joined)
    positions, _ = hop_records(segment, 0, size - LEAST_RECORD_BYTES, size)
    of_answer = np.searchsorted(ends, positions, side="right")
    block = measure(segment, positions, size, is_log=False)
    reached = int(block.positions[-1] + block.heads["size"][-1]) if len(block) else 0
    if reached != size:
        number = int(np.searchsorted(ends, reached, side="right"))
        raise _unsound(answers[number], block, len(block) - 1, "what follows is no record")
    return block, of_answer


def _clip(block: Block, of_answer: Longs, answers: Sequence[PulledRecords]) -> tuple[Block, Batches]:
    """Return the records and inner batches with only the messages that were asked for."""
    firsts, ends = (np.array(each, np.int64)[of_answer] for each in zip(*[each[2:4] for each in answers], strict=True))
    offsets = block.number("queue_offset")
    is_batch = block.number("sys_flag") & INNER_BATCH != 0
    kept = ((offsets >= firsts) & (offsets < ends)) | is_batch
    batches = dict(find_batches(block))
    if not kept.all():
        kept |= _is_foreign(block, of_answer, answers)
    for row in np.flatnonzero(is_batch).tolist():
        kept[row] = _clip_batch(block, row, batches, (int(firsts[row]), int(ends[row])))
    return (block if kept.all() else block.select(np.flatnonzero(kept))), batches


def _clip_batch(block: Block, row: int, batches: dict[int, Sequence[BatchPart]], bounds: tuple[int, int]) -> bool:
    """Cut a batch down to the messages in the bounds, and tell whether there are any."""
    base, position = int(block.heads["queue_offset"][row]), int(block.positions[row])
    count = len(batches.get(position, " "))
    first, end = max(bounds[0] - base, 0), min(bounds[1] - base, count)
    if first < end and position in batches:
        batches[position] = batches[position][first:end]
        block.heads["queue_offset"][row] = base + first
    return first < end


def _is_foreign(block: Block, of_answer: Longs, answers: Sequence[PulledRecords]) -> Mask:
    codes, topics = block_topics(block)
    asked = np.array([topics.index(each.topic) if each.topic in topics else -1 for each in answers])
    return codes != asked[of_answer]


def _unsound(answer: PulledRecords, block: Block, row: int, reason: str) -> RecordError:
    behind = f"behind offset {int(block.heads['queue_offset'][row])}" if row >= 0 else f"at offset {answer.first}"
    return RecordError(f"queue {answer.queue_id} of {answer.topic} {behind}: {reason}")
