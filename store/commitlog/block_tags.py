r"""The tags codes of a block of records, without a look at most properties.

    … \x02 TAGS \x01 value \x02 …

Rules (store.md §2.1, §3.2):

- Records of one producer have their tag at the same distance from the start or the end of their properties. Where one
  record has it, the others are tried; ``rfind`` serves those that are left. A guess may miss a later tag of the
  same record, which Java would take instead.
- Few different short tags, as most topics have, are hashed once for a block. The hash of another ASCII tag is worked
  out for all rows at once, from its bytes in words of eight.
"""

from collections.abc import Sequence
from itertools import repeat
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ...common.properties import tags_code
from .record_blocks import Block, Longs, Mask

_TAGS: Final = b"TAGS\x01"
_END: Final = b"\x02"
_GUESSES: Final = 4
_MOST_VALUES: Final = 8
_LEAST_ROWS: Final = 16
_WORD: Final = 8
_MOST_WORDS: Final = 4
_MOST_COPIED: Final = 4_096
_NAME: Final = np.uint64(int.from_bytes(_END + _TAGS, "little"))
_NAME_MASK: Final = np.uint64((1 << 48) - 1)
_ONES: Final = np.uint64(0x0101010101010101)
_HIGHS: Final = np.uint64(0x8080808080808080)
_ENDS: Final = np.uint64(0x0202020202020202)

Words = npt.NDArray[np.uint64]


class TagCodes(NamedTuple):
    """Codes by row; those that are not plain take a parser of properties."""

    values: Longs
    is_plain: Mask


def guess_codes(block: Block) -> TagCodes:
    """Return codes of which a queue entry may be found right; one that is found wrong has to be looked at again."""
    places = _Properties(block)
    return _codes_at(places, places.guess())


def exact_codes(block: Block) -> TagCodes:
    """Return the codes of which entries can be made."""
    places = _Properties(block)
    at = places.find(np.arange(len(block)))
    return _codes_at(places, at)


def find_last(view: memoryview, name: bytes, starts: Longs, ends: Longs) -> Longs:
    """Return where a name stands for the last time between each start and its end, -1 where it does not.

    The stretches follow each other.
    """
    if not len(starts):
        return starts
    first, last = int(starts[0]), int(ends[-1])
    if last - first <= _MOST_COPIED * len(starts):  # one copy costs less than a slice for each
        text, begins, stops = bytes(view[first:last]), starts - first, ends - first
    else:
        text = b"".join(map(view.__getitem__, map(slice, starts.tolist(), ends.tolist())))
        stops = np.cumsum(ends - starts)
        begins = stops - (ends - starts)
    found = np.fromiter(map(text.rfind, repeat(name), begins.tolist(), stops.tolist()), np.int64, len(starts))
    return np.where(found < 0, -1, found - begins + starts)


class _Properties:
    """Where the properties of a block are in its segment."""

    def __init__(self, block: Block) -> None:
        self.segment = block.segment
        self.starts = block.properties_at
        self.ends = self.starts + block.properties_bytes

    def word(self, at: Longs) -> Words:
        """Return the eight bytes at each place, the first as the lowest; a blank follows the last record of a file."""
        return self.segment.gather(at, "<u8").astype(np.uint64)

    def find(self, rows: Longs) -> Longs:
        """Return where the last tag of each row stands, -1 where there is none."""
        return find_last(self.segment.view, _TAGS, self.starts[rows], self.ends[rows])

    def guess(self) -> Longs:
        """Return where a tag of each row stands, -1 where there is none."""
        at = np.full(len(self.starts), -1)
        left = np.arange(len(at))
        for _ in range(_GUESSES):
            if len(left) < _LEAST_ROWS:
                break
            first = left[:1]
            (place,) = self.find(first).tolist()
            if place < 0:
                break
            for edges in (self.ends, self.starts):
                tried = edges[left] + (place - int(edges[first[0]]))
                hits = self._is_tag(left, tried)
                at[left[hits]] = tried[hits]
                left = left[~hits]
        at[left] = self.find(left)
        return at

    def _is_tag(self, rows: Longs, places: Longs) -> Mask:
        is_inside = (places > self.starts[rows]) & (places + len(_TAGS) < self.ends[rows])
        return is_inside & (self.word(np.where(is_inside, places - 1, 0)) & _NAME_MASK == _NAME)


def _codes_at(properties: _Properties, at: Longs) -> TagCodes:
    values = np.zeros(len(at), np.int64)
    is_plain = np.ones(len(at), bool)
    rows = np.flatnonzero(at >= 0)
    if len(rows):
        before = properties.segment.numbers[at[rows] - 1]
        is_plain[rows] = (at[rows] == properties.starts[rows]) | (before == _END[0])
        values[rows] = _codes_of(properties, at[rows] + len(_TAGS), properties.ends[rows])
        is_plain[rows] &= values[rows] != 0  # an empty tag is none, and an earlier one may count
    return TagCodes(values, is_plain)


def _codes_of(properties: _Properties, starts: Longs, ends: Longs) -> Longs:
    """Return the codes of the values; few different short ones are hashed once each, the others row by row."""
    codes = np.zeros(len(starts), np.int64)
    left = np.arange(len(starts))
    word = properties.word(starts)
    for _ in range(_MOST_VALUES):
        if len(left) < _LEAST_ROWS:
            break
        start, end = int(starts[left[0]]), int(ends[left[0]])
        value = bytes(properties.segment.view[start : min(start + _WORD, end)])
        size = value.find(_END) + 1  # with the end mark, which no value holds, equal bytes are equal values
        if not size:
            break
        mask = np.uint64(((1 << 8 * size) - 1) & 0xFFFFFFFFFFFFFFFF)
        hits = word[left] & mask == word[left[0]] & mask
        codes[left[hits]] = tags_code(str(value[: size - 1], "utf-8", "replace"))
        left = left[~hits]
    if len(left):
        codes[left] = _hash_values(properties, starts[left], ends[left])
    return codes


def _hash_values(properties: _Properties, starts: Longs, ends: Longs) -> Longs:
    hashes = np.zeros(len(starts), np.uint32)
    is_open = np.ones(len(starts), bool)
    is_odd = np.zeros(len(starts), bool)
    for number in range(_MOST_WORDS):
        places = np.minimum(starts + number * _WORD, ends)
        word = properties.word(places)
        length, has_end = _length_before_end(word)
        is_odd |= is_open & ((places + length > ends) | (word & _keep(length) & _HIGHS != 0))
        hashes = _add_bytes(hashes, word, np.where(is_open, length, 0))
        is_open &= ~has_end
        if not is_open.any():
            break
    codes = hashes.view(np.int32).astype(np.int64)
    odd = np.flatnonzero(is_odd | is_open)
    codes[odd] = _hash_slowly(properties.segment.view, starts[odd].tolist(), ends[odd].tolist())
    return codes


def _length_before_end(word: Words) -> tuple[Longs, Mask]:
    """Return how many bytes of each word stand before the first end mark, and whether there is one."""
    mixed = word ^ _ENDS
    marks = (mixed - _ONES) & ~mixed & _HIGHS
    has_end = marks != 0
    lowest = marks & (~marks + np.uint64(1))
    length = np.full(len(word), _WORD)
    for number in range(_WORD):
        length[lowest == np.uint64(0x80 << 8 * number)] = number
    return length, has_end


def _keep(length: Longs) -> Words:
    """Return the masks that keep so many bytes of a word."""
    shift = np.minimum(8 * length, 63).astype(np.uint64)
    mask = (np.uint64(1) << shift) - np.uint64(1)
    mask[length == _WORD] = ~np.uint64(0)
    return mask


def _add_bytes(hashes: npt.NDArray[np.uint32], word: Words, length: Longs) -> npt.NDArray[np.uint32]:
    for number in range(int(length.max(initial=0))):
        longer = hashes * np.uint32(31) + (word >> np.uint64(8 * number)).astype(np.uint8)
        hashes = np.where(length > number, longer, hashes)
    return hashes


def _hash_slowly(view: memoryview, starts: Sequence[int], ends: Sequence[int]) -> list[int]:
    texts = [bytes(view[start:end]).partition(_END)[0] for start, end in zip(starts, ends, strict=True)]
    return [tags_code(str(text, "utf-8", "replace")) for text in texts]
