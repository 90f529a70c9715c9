"""Puts blocks of records to queues and index: with numpy what ``queue_rebuild`` does record by record, to the same end.

Rules:

- First everything is compared with the queues, by guessed tags codes: after a clean stop or a kill nearly all of it is
  there. What is left is looked at exactly, and appended by runs.
- What is neither there nor at its queue's end goes to ``ConsumeQueueRebuild.feed``, record by record and in order.

Rules of delayed messages: the level is looked for in the properties of each record. One that is not written as one or
two digits, or that ``parse_properties`` has to judge, leaves its row not plain. ``entry_rules`` says what it means.

Rules of runs, records that are next to each other in a queue (store.md §3.1, §3.2):

- A run is as long as topic, queue and kind stay the same and the queue offsets follow each other.
- Rows whose entry takes more than the tag or the delay level are not plain: those without an entry, inner batches, and
  properties that ``parse_properties`` has to judge (two tags, an empty one). They are left to
  ``ConsumeQueueRebuild.feed``.

Topics are compared byte by byte, in words of eight; the hash only brings equal ones together.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ...common.names import SCHEDULE_TOPIC
from ..commitlog.block_tags import TagCodes, exact_codes, find_last, guess_codes
from ..commitlog.record_blocks import Block, Longs, Mask
from ..consumequeue.appended import Appended
from ..files.store_config import ENTRY_BYTES
from .dispatcher import UNKNOWN_LEVEL_MS, WITHOUT_ENTRY
from .queue_rebuild import ConsumeQueueRebuild, Place

_ENTRY: Final = np.dtype([("log_offset", ">i8"), ("size", ">i4"), ("code", ">i8")])
_WORD: Final = 8
_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)

Words = npt.NDArray[np.uint64]
_DELAY: Final = b"DELAY\x01"
_END: Final = 2
_MOST_MISSES = 2


class EntryRun(NamedTuple):
    """Records of one queue in a row; ``entries`` are those of plain ones, else empty."""

    rows: Longs
    topic: bytes
    queue_id: int
    queue_offset: int
    entries: memoryview


def iter_runs(block: Block, codes: TagCodes) -> Iterator[EntryRun]:
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
    for number, queue_offset in enumerate(offsets[starts].tolist()):
        start, end = bounds[number], bounds[number + 1]
        topic = bytes(block.segment.view[topic_at[number] : topic_at[number] + topic_bytes[number]])
        part = view[start * _ENTRY.itemsize : end * _ENTRY.itemsize] if plain[number] else view[:0]
        yield EntryRun(order[start:end], topic, queue_ids[number], queue_offset, part)


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


def with_due_times(block: Block, codes: TagCodes, delays_ms: Sequence[int]) -> TagCodes:
    """Return the codes, with due times in the rows of delayed messages; ``codes`` is changed."""
    rows = np.flatnonzero(block.topic_bytes == len(SCHEDULE_TOPIC))
    rows = rows[block.segment.gather(block.topic_at[rows], f"S{len(SCHEDULE_TOPIC)}") == SCHEDULE_TOPIC.encode()]
    if len(rows):
        levels = _levels(block, rows)
        delays = np.array(delays_ms or (UNKNOWN_LEVEL_MS,))
        codes.values[rows] = block.number("stored_at_ms")[rows] + delays[np.clip(levels, 1, len(delays)) - 1]
        codes.is_plain[rows] = levels > 0
    return codes


def _levels(block: Block, rows: Longs) -> Longs:
    """Return the level of each row, 0 where it cannot be told."""
    starts, bytes_at = block.properties_at[rows], block.segment.numbers
    ends = starts + block.properties_bytes[rows]
    at = find_last(block.segment.view, _DELAY, starts, ends)
    is_name = at >= 0
    is_name[is_name] = (at[is_name] == starts[is_name]) | (bytes_at[at[is_name] - 1] == _END)
    levels = np.zeros(len(rows), np.int64)
    levels[is_name] = _numbers(bytes_at, at[is_name] + len(_DELAY), ends[is_name])
    return levels


def _numbers(bytes_at: npt.NDArray[np.uint8], at: Longs, ends: Longs) -> Longs:
    """Return the numbers of one or two digits that stand there and end as values do, 0 where there is none."""

    def is_end(places: Longs) -> Mask:
        return (places >= ends) | (bytes_at[np.minimum(places, ends - 1)] == _END)

    first, second = (bytes_at[np.minimum(at + place, ends - 1)].astype(np.int64) - ord("0") for place in range(2))
    is_first = (first >= 0) & (first <= 9) & ~is_end(at)
    is_second = (second >= 0) & (second <= 9) & ~is_end(at + 1)
    one, two = is_first & is_end(at + 1), is_first & is_second & is_end(at + 2)
    return np.where(one, first, np.where(two, 10 * first + second, 0))


def rebuild_from_block(block: Block, rebuild: ConsumeQueueRebuild) -> None:
    """Compare the records with the queues and write what is missing or wrong (raises ``OSError``)."""
    left: list[Longs] = []
    behind: set[Place] = set()
    for run in iter_runs(block, with_due_times(block, guess_codes(block), rebuild.rules.delays_ms)):
        place = (run.topic, run.queue_id)
        taken = rebuild.confirm_run(place, run.queue_offset, run.entries) if place not in behind else 0
        if taken < len(run.rows):
            left.append(run.rows[taken:])
            behind.add(place)
    if left:
        rest = block.select(np.sort(np.concatenate(left)))
        for run in iter_runs(rest, with_due_times(rest, exact_codes(rest), rebuild.rules.delays_ms)):
            _place_run(rest, run, rebuild)


def _place_run(block: Block, run: EntryRun, rebuild: ConsumeQueueRebuild) -> None:
    place, done, misses = (run.topic, run.queue_id), 0, 0 if run.entries else _MOST_MISSES
    while done < len(run.rows):
        if misses < _MOST_MISSES:
            before = done
            done += rebuild.confirm_run(place, run.queue_offset + done, run.entries[done * ENTRY_BYTES :])
            rest = run.entries[done * ENTRY_BYTES :]
            if rest and rebuild.append_run(place, run.queue_offset + done, rest):
                return
            misses += done == before
        if done < len(run.rows):
            rebuild.feed(_record(block, int(run.rows[done])))
            done += 1


def _record(block: Block, row: int) -> memoryview:
    position = int(block.positions[row])
    return block.segment.view[position : position + int(block.heads["size"][row])]


def describe_block(block: Block) -> list[Appended]:
    """Return what the index needs of the records."""
    view = block.segment.view
    topics = [bytes(view[at : at + size]) for at, size in zip(block.topic_at, block.topic_bytes, strict=True)]
    starts, ends = block.properties_at.tolist(), (block.properties_at + block.properties_bytes).tolist()
    names = {topic: str(topic, "utf-8", "replace") for topic in set(topics)}
    columns = [
        block.number(name).tolist()
        for name in ("log_offset", "queue_offset", "size", "queue_id", "sys_flag", "stored_at_ms")
    ]
    return [
        Appended(at, queue_offset, size, names[topic], queue_id, flag, stored, bytes(view[start:end]), None)
        for at, queue_offset, size, queue_id, flag, stored, topic, start, end in zip(
            *columns, topics, starts, ends, strict=True
        )
    ]
