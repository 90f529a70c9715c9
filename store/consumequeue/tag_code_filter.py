r"""Finds the entries of a queue that have one of some tags codes, without a loop over all of them.

    entry     log offset (8) | size (4) | tags code (8), the hash of the tags in its last four bytes
    marks     last byte of each entry -> \1 where a wanted code ends with it, else \0

Rules:

- An entry whose mark is set may have a wanted code; whoever reads it compares the code. Entries without one have none.
- Codes are compared as Java's ints: the hash counts, whatever stands above it.
"""

from collections.abc import Collection

from ..files.store_config import ENTRY_BYTES

_LAST_BYTE = slice(ENTRY_BYTES - 1, None, ENTRY_BYTES)
_SIZE_BYTES = slice(8, None, ENTRY_BYTES), slice(9, None, ENTRY_BYTES)
SMALL_BYTES = 1 << 16


class TagCodeFilter:
    """Accepts tags codes; called with one, it is a filter like any other."""

    __slots__ = ("codes",)

    def __init__(self, codes: Collection[int]) -> None:
        self.codes = frozenset(codes)

    def __call__(self, tags_code: int) -> bool:
        """Tell whether a code is wanted."""
        return tags_code in self.codes

    def __repr__(self) -> str:
        return f"<TagCodeFilter {len(self.codes)}>"

    def marks(self, entries: bytes) -> bytes:
        """Return a byte for each entry, which is not zero where its code may be wanted."""
        table = bytearray(256)
        for code in self.codes:
            table[code & 0xFF] = 1
        return entries[_LAST_BYTE].translate(table)


def are_small(entries: bytes) -> bool:
    """Tell whether all entries are of records below ``SMALL_BYTES``; one without a record is not."""
    first, second = _SIZE_BYTES
    return entries[first] == entries[second] == bytes(len(entries) // ENTRY_BYTES)
