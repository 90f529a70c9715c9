"""The queue entries that a block of records must have, and the runs of records that are next to each other in a queue.

Rules (store.md §3.1, §3.2):

- A run is as long as topic, queue and kind stay the same and the queue offsets follow each other.
- Rows whose entry takes more than the tag or the delay level are not plain: those without an entry, inner batches, and
  properties that ``parse_properties`` has to judge (two tags, an empty one). They are left to ``Requeue.feed``.

Topics are compared byte by byte, in words of eight; the hash only brings equal ones together.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ..commitlog.block_tags import TagCodes
from ..commitlog.record_blocks import Block, Longs
from ..consumequeue.entry_rules import WITHOUT_ENTRY

_ENTRY: Final = np.dtype([("log_offset", ">i8"), ("size", ">i4"), ("code", ">i8")])
_WORD: Final = 8
_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)

Words = npt.NDArray[np.uint64]


class Run(NamedTuple):
    """Records of one queue in a row; ``entries`` are those of plain ones, else empty."""

    rows: Longs
    topic: bytes
    queue_id: int
    queue_offset: int
    entries: memoryview


def iter_runs(block: Block, codes: TagCodes) -> Iterator[Run]:
    """Yield the runs of a block whose tags codes are given; those of one queue in log order."""
    is_plain = codes.is_plain & (block.number("sys_flag") & WITHOUT_ENTRY == 0)
    columns = [block.number("queue_id"), block.topic_bytes, *_topic_words(block)]
    order = _bring_together(columns)
    offsets = block.number("queue_offset")[order]
    is_start = np.empty(len(order), bool)
    is_start[0] = True
    np.not_equal(offsets[1:], offsets[:-1] + 1, out=is_start[1:])
    for column in (*columns, is_plain):
        column = column[order]
        is_start[1:] |= column[1:] != column[:-1]
    entries = np.empty(len(order), _ENTRY)
    entries["log_offset"] = block.heads["log_offset"][order]
    entries["size"] = block.heads["size"][order]
    entries["code"] = codes.values[order]
    view = memoryview(entries.tobytes())
    starts = np.flatnonzero(is_start)
    firsts = order[starts]
    queue_ids, plain = columns[0][firsts].tolist(), is_plain[firsts].tolist()
    topic_at, topic_bytes = block.topic_at[firsts].tolist(), block.topic_bytes[firsts].tolist()
    bounds = [*starts.tolist(), len(order)]
    for number, offset in enumerate(offsets[starts].tolist()):
        start, end = bounds[number], bounds[number + 1]
        topic = bytes(block.segment.view[topic_at[number] : topic_at[number] + topic_bytes[number]])
        part = view[start * _ENTRY.itemsize : end * _ENTRY.itemsize] if plain[number] else view[:0]
        yield Run(order[start:end], topic, queue_ids[number], offset, part)


def _topic_words(block: Block) -> list[Words]:
    most = int(block.topic_bytes.max())
    words: list[Words] = []
    for start in range(0, most, _WORD):
        left = np.clip(block.topic_bytes - start, 0, _WORD)
        word = block.segment.gather(block.topic_at + np.where(left, start, 0), ">u8").astype(np.uint64)
        word >>= (8 * (_WORD - left)).astype(np.uint64) & np.uint64(63)
        word[left == 0] = 0
        words.append(word)
    return words


def _bring_together(columns: Sequence[npt.NDArray[Any]]) -> Longs:
    """Return an order in which rows with equal columns are next to each other, nearly always, and else in order."""
    mixed = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        mixed = (mixed ^ column.astype(np.uint64)) * _FACTOR
    return np.argsort((mixed >> np.uint64(48)).astype(np.uint16), kind="stable")
