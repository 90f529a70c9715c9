r"""What queue entries and index entries of many records must hold: tag codes and key hashes, with numpy.

    name \x01 value \x02 …    of all records in one buffer -> places of the values of TAGS, KEYS and UNIQ_KEY

Rules are those of ``common.properties.parse_properties``, ``queue_table.entry_code`` and ``index_build.collect``, which
are the same for one record. Values that are not ASCII are taken one by one.
"""

from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ...common.message import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from ...common.names import SCHEDULE_TOPIC
from ...common.properties import DELAY, KEYS, TAGS, UNIQ_KEY, java_hash
from ..commitlog.record_blocks import Block, Longs
from ..recovery.dispatcher import entry_code

_NAME_MARK: Final = 1
_END_MARK: Final = 2
_SPACE: Final = 32
_NAMES: Final = (TAGS, KEYS, UNIQ_KEY, DELAY)


class Values(NamedTuple):
    """Where the values of one property stand in the buffer; ``rows`` are the records that have it."""

    rows: Longs
    starts: Longs
    ends: Longs


class KeyEntries(NamedTuple):
    """The index entries of a block, in the order of its records; ``is_tag`` marks those that old brokers lack."""

    rows: Longs
    hashes: Longs
    is_tag: npt.NDArray[np.bool_]


class BlockKeys:
    """Tag codes, index hashes and unique keys of a block."""

    def __init__(self, block: Block, topics: tuple[Longs, list[str]], delays_ms: tuple[int, ...]) -> None:
        self._block = block
        self._topic_numbers, self._topics = topics
        self._delays_ms = delays_ms
        view = block.segment.view
        ends = (block.properties_at + block.properties_bytes).tolist()
        pieces = [view[start:end] for start, end in zip(block.properties_at.tolist(), ends, strict=True)]
        self._text = b"\x02".join([*pieces, b""])
        self._bytes = np.frombuffer(self._text, np.uint8)
        self._is_ascii = self._text.isascii()
        self._values = self._find_values()

    def unique_key(self, row: int) -> str | None:
        """Return the unique key of a record."""
        return self._text_of(self._values[UNIQ_KEY], row)

    def topic(self, row: int) -> str:
        """Return the topic of a record."""
        return self._topics[int(self._topic_numbers[row])]

    def tags_codes(self) -> Longs:
        """Return what the queue entry of each record holds as its code."""
        codes = np.zeros(len(self._block), np.int64)
        found = self._values[TAGS]
        if len(found.rows):
            codes[found.rows] = self._hashes(found).astype(np.int32)
        if SCHEDULE_TOPIC in self._topics:
            stored_at = self._block.number("stored_at_ms")
            for row in np.flatnonzero(self._topic_numbers == self._topics.index(SCHEDULE_TOPIC)).tolist():
                properties = {DELAY: self._text_of(self._values[DELAY], row) or ""}
                properties[TAGS] = self._text_of(found, row) or ""
                codes[row] = entry_code(SCHEDULE_TOPIC, properties, int(stored_at[row]), self._delays_ms)
        return codes

    def key_entries(self) -> KeyEntries:
        """Return the index entries of all records."""
        kinds = [
            self._indexed(self._values[UNIQ_KEY], "#"),
            self._indexed(self._words(self._values[KEYS]), "#"),
            self._indexed(self._values[TAGS], "#T#"),
        ]
        rows = np.concatenate([rows for rows, _ in kinds])
        hashes = np.concatenate([hashes for _, hashes in kinds])
        is_tag = np.repeat([False, False, True], [len(rows) for rows, _ in kinds])
        flags = self._block.number("sys_flag")[rows] & TRANSACTION_MASK
        order = np.argsort(rows, kind="stable")
        order = order[(flags != TRANSACTION_ROLLBACK)[order]]
        return KeyEntries(rows[order], hashes[order], is_tag[order])

    def _text_of(self, values: Values, row: int) -> str | None:
        at = int(np.searchsorted(values.rows, row))
        if at >= len(values.rows) or values.rows[at] != row:
            return None
        return str(self._text[int(values.starts[at]) : int(values.ends[at])], "utf-8", "replace")

    def _find_values(self) -> dict[str, Values]:
        marks = np.flatnonzero((self._bytes - 1) < _END_MARK)
        kinds = self._bytes[marks]
        ends, names = marks[kinds == _END_MARK], marks[kinds == _NAME_MARK]
        starts = np.concatenate(([0], ends[:-1] + 1))
        splits = np.append(names, len(self._text))[np.searchsorted(names, starts)]
        kept = (splits > starts) & (splits < ends - 1)
        starts, splits, ends = starts[kept], splits[kept], ends[kept]
        first = np.cumsum(self._block.properties_bytes + 1)
        return {name: self._values_of(name.encode(), first, (starts, splits, ends)) for name in _NAMES}

    def _values_of(self, name: bytes, row_ends: Longs, chunks: tuple[Longs, Longs, Longs]) -> Values:
        starts, splits, ends = chunks
        found = np.flatnonzero(splits - starts == len(name))
        if len(found):
            window = np.ndarray((len(self._text) - len(name) + 1,), f"S{len(name)}", self._text, 0, (1,))
            found = found[window[starts[found]] == name]
        rows = np.searchsorted(row_ends, starts[found], "right")
        last = np.append(rows[1:] != rows[:-1], True)[: len(rows)]  # of equal names in a record the last one counts
        return Values(rows[last], splits[found][last] + 1, ends[found][last])

    def _words(self, values: Values) -> Values:
        """Return the words of each value that are not empty."""
        if not len(values.rows):
            return values
        spaces = np.flatnonzero(self._bytes == _SPACE)
        low, high = np.searchsorted(spaces, values.starts), np.searchsorted(spaces, values.ends)
        counts = high - low + 1
        owner = np.repeat(np.arange(len(counts)), counts)
        place = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
        padded = np.append(spaces, 0)
        after = low[owner] + place
        starts = np.where(place == 0, values.starts[owner], padded[np.maximum(after - 1, 0)] + 1)
        is_last = place == counts[owner] - 1
        ends = np.where(is_last, values.ends[owner], padded[np.minimum(after, len(spaces))])
        kept = ends > starts
        return Values(values.rows[owner][kept], starts[kept], ends[kept])

    def _indexed(self, values: Values, infix: str) -> tuple[Longs, Longs]:
        """Return rows and index hashes of values behind the topics of their records."""
        if not len(values.rows):
            return values.rows, values.rows
        prefixes = np.array([_hash32(topic + infix) for topic in self._topics], np.uint32)
        lengths = values.ends - values.starts
        hashes = self._hashes(values)
        hashes += prefixes[self._topic_numbers[values.rows]] * _powers(int(lengths.max()) + 1)[lengths]
        if not self._is_ascii:
            for at in self._odd(values):
                text = str(self._text[int(values.starts[at]) : int(values.ends[at])], "utf-8", "replace")
                topic = self._topics[int(self._topic_numbers[values.rows[at]])]
                hashes[at] = _hash32(f"{topic}{infix}{text}")
        found = np.abs(hashes.view(np.int32).astype(np.int64))
        found[found == 2**31] = 0
        return values.rows, found

    def _hashes(self, values: Values) -> npt.NDArray[np.uint32]:
        """Return Java's hash of each value, of which there are some."""
        lengths = values.ends - values.starts
        first = np.cumsum(lengths) - lengths
        at = np.arange(int(lengths.sum())) - np.repeat(first - values.starts, lengths)
        units = self._bytes[at].astype(np.uint32)
        units *= _powers(int(lengths.max()) + 1)[np.repeat(values.ends, lengths) - 1 - at]
        hashes = np.add.reduceat(units, first, dtype=np.uint32)
        if not self._is_ascii:
            for row in self._odd(values):
                text = str(self._text[int(values.starts[row]) : int(values.ends[row])], "utf-8", "replace")
                hashes[row] = _hash32(text)
        return hashes

    def _odd(self, values: Values) -> list[int]:
        """Return the values that hold bytes outside ASCII."""
        high = np.flatnonzero(self._bytes >= 0x80)
        return np.flatnonzero(np.searchsorted(high, values.starts) < np.searchsorted(high, values.ends)).tolist()


def name_topics(block: Block) -> tuple[Longs, list[str]]:
    """Return the number of each record's topic, and the topics by number."""
    view = block.segment.view
    known: dict[bytes, int] = {}
    number = known.setdefault
    ends = (block.topic_at + block.topic_bytes).tolist()
    names = [view[start:end].tobytes() for start, end in zip(block.topic_at.tolist(), ends, strict=True)]
    numbers = np.array([number(name, len(known)) for name in names], np.int64)
    return numbers, [str(name, "utf-8", "replace") for name in known]


@lru_cache(maxsize=4096)
def _hash32(text: str) -> int:
    return java_hash(text) & 0xFFFFFFFF


def _powers(count: int) -> npt.NDArray[np.uint32]:
    factors = np.full(count, 31, np.uint32)
    factors[0] = 1
    return factors.cumprod(dtype=np.uint32)
