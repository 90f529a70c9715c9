"""Bit positions of a consumer's filter, as a Java broker keeps them in ``consumerFilter.json``.

rocketlet evaluates every filter and needs no bits; a Java broker that takes the store over ignores the whole file when
one entry has none of the right shape (spec behaviour.md B.6.3, store.md §9.6).

    bits        the smallest multiple of 8 that is >= consumers * log2(1 / error rate) * log2(e)
    positions   as many as -log2(error rate), rounded up; the i-th (from 1) is low + i * high, in 32 bits, all bits
                flipped when that is negative, modulo the number of bits
    low, high   the two halves of the first 8 bytes of Murmur3 128 (x64, seed 0) over the UTF-8 text
"""

import math
from typing import NamedTuple

_MASK = 0xFFFFFFFFFFFFFFFF
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


class BloomShape(NamedTuple):
    """How many bits a filter has, and how many of them stand for one text (``BloomFilter``)."""

    bits: int
    positions: int

    @classmethod
    def of(cls, *, error_percent: int, consumers: int) -> "BloomShape":
        """Return the shape for an error rate and a number of consumers (``BloomFilter.createByFn``)."""
        rate = error_percent / 100
        bits = math.ceil(consumers * math.log2(1 / rate) * math.log2(math.e))
        return cls(8 * math.ceil(bits / 8), math.ceil(-math.log2(rate)))

    def positions_of(self, text: str) -> list[int]:
        """Return the bits that stand for a text (``BloomFilter.calcBitPositions``)."""
        hashed = murmur3_64(text.encode())
        low, high = _signed(hashed), _signed(hashed >> 32)
        combined = (_signed(low + number * high) for number in range(1, self.positions + 1))
        return [(value if value >= 0 else ~value) % self.bits for value in combined]


def murmur3_64(data: bytes) -> int:
    """Return the first 8 bytes of Murmur3 128 (x64 variant, seed 0), little-endian and unsigned."""
    first = second = 0
    whole = len(data) & ~15
    for start in range(0, whole, 16):
        first ^= _scramble(_word(data[start : start + 8]), _C1, 31, _C2)
        first = (_rotate(first, 27) + second) * 5 + 0x52DCE729 & _MASK
        second ^= _scramble(_word(data[start + 8 : start + 16]), _C2, 33, _C1)
        second = (_rotate(second, 31) + first) * 5 + 0x38495AB5 & _MASK
    second ^= _scramble(_word(data[whole + 8 :]), _C2, 33, _C1)
    first ^= _scramble(_word(data[whole : whole + 8]), _C1, 31, _C2)
    first ^= len(data)
    second ^= len(data)
    first = first + second & _MASK
    second = second + first & _MASK
    return _finish(first) + _finish(second) & _MASK


def _word(data: bytes) -> int:
    return int.from_bytes(data, "little")


def _rotate(value: int, by: int) -> int:
    return (value << by | value >> 64 - by) & _MASK


def _scramble(word: int, before: int, by: int, after: int) -> int:
    return _rotate(word * before & _MASK, by) * after & _MASK


def _finish(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33


def _signed(value: int) -> int:
    return (value + 0x80000000 & 0xFFFFFFFF) - 0x80000000
