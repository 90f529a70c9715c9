r"""Tags, keys and unique keys of many records, found in their properties and hashed with numpy.

    name \x01 value \x02 …    of all records in one buffer -> places of the values of a name -> their hashes

Rules are those of ``common.properties.parse_properties`` and of the index for one record (store.md §4.2): its unique
key, the words of KEYS, and its tag. Hashes are Java's ``String.hashCode``: each byte times the power of 31 that belongs
to its distance from the end of its value, summed per value, modulo 2^32. Values that are not ASCII are taken one by
one.
"""

from collections.abc import Hashable, Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from ...common.properties import KEYS, TAGS, UNIQ_KEY, java_hash
from ..commitlog.record_blocks import Longs, Mask

_NAME_MARK: Final = 1
_END_MARK: Final = 2
_SPACE: Final = 32
H = TypeVar("H", bound=Hashable)


class Values(NamedTuple):
    """Where the values of one property stand in the buffer; ``rows`` are the records that have it."""

    rows: Longs
    starts: Longs
    ends: Longs


class KeyEntries(NamedTuple):
    """The index entries of records, in the order of these; ``is_tag`` marks those that old brokers lack."""

    rows: Longs
    hashes: Longs
    is_tag: Mask


class TopicNumbers(NamedTuple):
    """The topics of records: the number of each record's one, and the topics by number."""

    numbers: Longs
    names: list[str]


def number_names(names: Sequence[H]) -> tuple[Longs, list[H]]:
    """Return a number for each name, and the different names by number."""
    known = list(dict.fromkeys(names))
    if len(known) == 1:
        return np.zeros(len(names), np.int64), known
    numbers = {name: number for number, name in enumerate(known)}
    return np.array([numbers[name] for name in names], np.int64), known


class PropertyKeys:
    """What queue and index need of the properties of many records."""

    def __init__(self, texts: Iterable[bytes | memoryview], sizes: Longs) -> None:
        self._text = b"\x02".join([*texts, b""])
        self._bytes = np.frombuffer(self._text, np.uint8)
        self._is_ascii = self._text.isascii()
        self._row_ends = np.cumsum(sizes + 1)
        self._chunks = self._find_chunks()

    def find(self, name: str) -> Values:
        """Return the values of a name."""
        data = name.encode()
        starts, splits, ends = self._chunks
        found = np.flatnonzero(splits - starts == len(data))
        if len(found):
            window = np.ndarray((len(self._text) - len(data) + 1,), f"S{len(data)}", self._text, 0, (1,))
            found = found[window[starts[found]] == data]
        rows = np.searchsorted(self._row_ends, starts[found], "right")
        last = np.append(rows[1:] != rows[:-1], True)[: len(rows)]  # of equal names in a record the last one counts
        return Values(rows[last], splits[found][last] + 1, ends[found][last])

    def text_of(self, values: Values, row: int) -> str | None:
        """Return the value that a record has."""
        at = int(np.searchsorted(values.rows, row))
        return self._text_at(values, at) if at < len(values.rows) and values.rows[at] == row else None

    def hashes(self, values: Values) -> npt.NDArray[np.uint32]:
        """Return Java's hash of each value."""
        if not len(values.rows):
            return np.zeros(0, np.uint32)
        lengths = values.ends - values.starts
        most = int(lengths.max())
        powers = _powers(most)
        if most == lengths.min():  # unique keys of one kind of client, and most tags
            windows = np.ndarray((len(self._text) - most + 1, most), np.uint8, self._text, 0, (1, 1))
            hashes = windows[values.starts].astype(np.uint32) @ powers[most - 1 :: -1]
        else:
            first = np.cumsum(lengths) - lengths
            at = np.arange(int(lengths.sum())) - np.repeat(first - values.starts, lengths)
            units = self._bytes[at].astype(np.uint32)
            units *= powers[np.repeat(values.ends, lengths) - 1 - at]
            hashes = np.add.reduceat(units, first, dtype=np.uint32)
        if not self._is_ascii:
            for row in self._odd(values):
                hashes[row] = hash32(self._text_at(values, row))
        return hashes

    def entries(self, topics: TopicNumbers) -> KeyEntries:
        """Return the index entries of all records: of each the unique key, the words of its keys, its tag."""
        kinds = [
            self._indexed(self.find(UNIQ_KEY), "#", topics),
            self._indexed(self._words(self.find(KEYS)), "#", topics),
            self._indexed(self.find(TAGS), "#T#", topics),
        ]
        rows = np.concatenate([rows for rows, _ in kinds])
        order = np.argsort(rows, kind="stable")
        hashes = np.concatenate([hashes for _, hashes in kinds])
        is_tag = np.repeat([False, False, True], [len(rows) for rows, _ in kinds])
        return KeyEntries(rows[order], hashes[order], is_tag[order])

    def _find_chunks(self) -> tuple[Longs, Longs, Longs]:
        """Return where the names begin, where they end, and where their values end, of all properties that count."""
        marks = np.flatnonzero((self._bytes - 1) < _END_MARK)
        kinds = self._bytes[marks]
        ends, names = marks[kinds == _END_MARK], marks[kinds == _NAME_MARK]
        starts = np.concatenate(([0], ends[:-1] + 1))
        splits = np.append(names, len(self._text))[np.searchsorted(names, starts)]
        kept = (splits > starts) & (splits < ends - 1)
        return starts[kept], splits[kept], ends[kept]

    def _words(self, values: Values) -> Values:
        """Return the words of each value that are not empty."""
        spaces = np.flatnonzero(self._bytes == _SPACE)
        low, high = np.searchsorted(spaces, values.starts), np.searchsorted(spaces, values.ends)
        if (low == high).all():
            return values
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

    def _indexed(self, values: Values, infix: str, topics: TopicNumbers) -> tuple[Longs, Longs]:
        """Return rows and index hashes of values behind the topics of their records."""
        if not len(values.rows):
            return values.rows, values.rows
        prefixes = np.array([hash32(topic + infix) for topic in topics.names], np.uint32)
        lengths = values.ends - values.starts
        hashes = self.hashes(values)
        hashes += prefixes[topics.numbers[values.rows]] * _powers(int(lengths.max()) + 1)[lengths]
        if not self._is_ascii:
            for at in self._odd(values):
                topic = topics.names[int(topics.numbers[values.rows[at]])]
                hashes[at] = hash32(f"{topic}{infix}{self._text_at(values, at)}")
        found = np.abs(hashes.view(np.int32).astype(np.int64))
        found[found == 2**31] = 0
        return values.rows, found

    def _text_at(self, values: Values, at: int) -> str:
        return str(self._text[int(values.starts[at]) : int(values.ends[at])], "utf-8", "replace")

    def _odd(self, values: Values) -> list[int]:
        """Return the values that hold bytes outside ASCII."""
        high = np.flatnonzero(self._bytes >= 0x80)
        return np.flatnonzero(np.searchsorted(high, values.starts) < np.searchsorted(high, values.ends)).tolist()


@lru_cache(maxsize=4096)
def hash32(text: str) -> int:
    """Return Java's hash of a text as an unsigned number."""
    return java_hash(text) & 0xFFFFFFFF


def _powers(count: int) -> npt.NDArray[np.uint32]:
    factors = np.full(count, 31, np.uint32)
    factors[0] = 1
    return factors.cumprod(dtype=np.uint32)
