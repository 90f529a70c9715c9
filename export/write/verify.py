"""Compares exported files with the report of their export, queue by queue.

Rules:

- Compared are the number of rows, the first, the last and the sum of their queue offsets, and, where no message of the
  queue was left out, each single offset: so what is missing and what is there twice is named.
- Where several stores of a report have a queue of one name, their rows are compared together.
- Bodies are compared with their checksums, where the files have ``body``, ``bodyCrc`` and ``sysFlag``. Bodies that
  were compressed, or came in an inner batch, have another checksum than the stored one and cannot be.
- What stands against the report itself is a difference, too: then it is not known what should be there.
"""

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...common.sysflag import COMPRESSED, INNER_BATCH
from ..report.offsetset import OffsetSet
from ..report.report import Report
from ..report.runs import Runs
from ..report.tally import SUM_MASK, QueueKey, QueueTally
from .outputs import BODIES, Output

_NOT_AS_STORED: Final = COMPRESSED | INNER_BATCH
_CRC_MASK: Final = 0x7FFFFFFF


@dataclass
class Found:
    """What the files hold."""

    rows: int = 0
    files: int = 0
    checked_bodies: int = 0
    wrong_bodies: int = 0
    queues: dict[QueueKey, OffsetSet] = field(default_factory=dict[QueueKey, OffsetSet])


def read_outputs(outputs: Iterable[Output], *, checks_bodies: bool = True) -> Found:
    """Return what the files hold; raises ``ConfigError`` as ``Output.batches`` does."""
    found = Found()
    for output in outputs:
        found.files += 1
        for batch in output.batches(with_bodies=checks_bodies):
            found.rows += batch.num_rows
            _count_offsets(found, batch)
            if "body" in batch.schema.names:
                _check_bodies(found, batch)
    return found


def compare(report: Report, found: Found) -> Iterator[str]:
    """Yield the differences, one line each."""
    yield from (f"report: {fault}" for fault in report.faults())
    expected = _expected_queues(report)
    for key in sorted({*expected, *found.queues}):
        queue, offsets = expected.get(key, QueueTally()), found.queues.get(key, OffsetSet())
        yield from (f"{key[0]} queue {key[1]}: {text}" for text in _compare_queue(queue, offsets))
    if found.wrong_bodies:
        yield f"bodies without their checksum: {found.wrong_bodies}"


def _expected_queues(report: Report) -> dict[QueueKey, QueueTally]:
    expected: dict[QueueKey, QueueTally] = {}
    for tally in report.stores:
        for key, queue in tally.queues.items():
            expected.setdefault(key, QueueTally()).merge(queue)
    return expected


def _compare_queue(queue: QueueTally, offsets: OffsetSet) -> Iterator[str]:
    if offsets.count != queue.rows:
        yield f"{offsets.count} rows instead of {queue.rows}"
    if queue.rows == queue.messages:
        yield from _compare_offsets(queue.offsets, offsets)
    elif offsets.count and queue.rows:
        yield from _compare_sums(queue, offsets)


def _compare_offsets(expected: Runs, offsets: OffsetSet) -> Iterator[str]:
    found = Runs(offsets.runs())
    yield from (f"missing {_name(*run)}" for run in expected.minus(found))
    yield from (f"unexpected {_name(*run)}" for run in found.minus(expected))
    repeated = offsets.repeated()
    if len(repeated) != expected.repeats:
        first = f", the first is {repeated[0]}" if repeated else ""
        yield f"repeated queue offsets: {len(repeated)} instead of {expected.repeats}{first}"


def _compare_sums(queue: QueueTally, offsets: OffsetSet) -> Iterator[str]:
    runs, repeated = offsets.runs(), offsets.repeated()
    first, last = runs[0][0], runs[-1][1] - 1
    if (first, last) != (queue.delivered.first, queue.delivered.last):
        yield f"queue offsets {first} to {last} instead of {queue.delivered.first} to {queue.delivered.last}"
    added = sum((start + end - 1) * (end - start) // 2 for start, end in runs) + sum(repeated)
    if added & SUM_MASK != queue.delivered.offset_sum:
        yield "the queue offsets are others: they do not have the sum of the report"
    if repeated and not queue.offsets.repeats:
        yield f"repeated queue offsets: {len(repeated)} instead of 0, the first is {repeated[0]}"


def _name(start: int, end: int) -> str:
    return f"queue offset {start}" if end == start + 1 else f"queue offsets {start} to {end - 1}"


def _count_offsets(found: Found, batch: pa.RecordBatch) -> None:
    topics = batch.column("topic").dictionary_encode()
    names: list[str] = topics.dictionary.to_pylist()
    codes, queue_ids = np.asarray(topics.indices), np.asarray(batch.column("queueId"))
    offsets = np.asarray(batch.column("queueOffset"))
    for code, name in enumerate(names):
        of_topic = codes == code
        ids: list[int] = np.unique(queue_ids[of_topic]).tolist()
        for queue_id in ids:
            chosen = offsets[of_topic & (queue_ids == queue_id)]
            found.queues.setdefault((name, queue_id), OffsetSet()).add(chosen)


def _check_bodies(found: Found, batch: pa.RecordBatch) -> None:
    bodies, sums, flags = (batch.column(name) for name in BODIES)
    as_stored = np.asarray(flags) & _NOT_AS_STORED == 0
    as_stored &= np.asarray(pc.binary_length(bodies).fill_null(0)) > 0  # Java keeps no checksum of an empty body
    found.checked_bodies += int(as_stored.sum())
    rows = pa.array(np.flatnonzero(as_stored))
    crcs = np.array([zlib.crc32(body.as_buffer()) for body in bodies.take(rows)], np.int64) & _CRC_MASK
    found.wrong_bodies += int((crcs != np.asarray(sums)[as_stored]).sum())
