"""A growing set of numbers, one bit each: which half messages of their queue are settled.

Rules

    1. Nearly all messages are settled soon after they came, so the set is dense; a bit for each, from the first that
       is of interest on, is small. A million half messages that nobody has settled take 125 kB.
    2. Numbers below ``forget_below`` are dropped, and are taken for nothing then.
    3. Runs of settled messages are passed eight at a time by a search in C.

Pure.
"""

import re

_HAS_OPEN = re.compile(rb"[^\xff]")
_BITS = 8


class SettledOffsets:
    """Which queue offsets are settled, from one on."""

    def __init__(self, first: int) -> None:
        self._base = first - first % _BITS  # the number of the first bit
        self._bits = bytearray()

    def __repr__(self) -> str:
        return f"<SettledOffsets from {self._base}, {len(self._bits)} bytes>"

    def __contains__(self, number: int) -> bool:
        byte, bit = divmod(number - self._base, _BITS)
        return 0 <= byte < len(self._bits) and bool(self._bits[byte] & 1 << bit)

    def add(self, number: int) -> None:
        """Put a number in."""
        byte, bit = divmod(number - self._base, _BITS)
        if byte < 0:
            return
        if byte >= len(self._bits):
            self._bits.extend(bytes(byte + 1 - len(self._bits)))
        self._bits[byte] |= 1 << bit

    def discard(self, number: int) -> None:
        """Take a number out."""
        byte, bit = divmod(number - self._base, _BITS)
        if 0 <= byte < len(self._bits):
            self._bits[byte] &= ~(1 << bit)

    def next_open(self, number: int, end: int) -> int:
        """Return the first number from ``number`` on that is not in the set; ``end`` when all below it are."""
        byte, bit = divmod(number - self._base, _BITS)
        while number < end and byte < len(self._bits):
            missing = ~self._bits[byte] & 0xFF << bit & 0xFF
            if missing:
                number = self._base + byte * _BITS + (missing & -missing).bit_length() - 1
                return min(number, end)
            found = _HAS_OPEN.search(self._bits, byte + 1)
            byte, bit = found.start() if found else len(self._bits), 0
            number = self._base + byte * _BITS
        return min(number, end)

    def forget_below(self, number: int) -> None:
        """Drop the numbers below one, or a few less."""
        count = (number - self._base) // _BITS
        if count > 0:
            del self._bits[:count]
            self._base += count * _BITS
