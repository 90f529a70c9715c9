"""Decompresses header blocks (HPACK), for who reads requests.

    first byte   field
    1xxxxxxx     one of the table: index
    01xxxxxx     name by index, or 0 and a text; value; goes into the table
    001xxxxx     no field: another size of the table, at the front of a block only
    000xxxxx     name and value, which stay out of the table

Rule 1: The table is 4,096 bytes at most, since we ask for no other size: so is what a peer may have us keep.
Rule 2: A block that is longer than the limit when it is decompressed is not decompressed to its end.

A call has some fifteen fields, nearly all in the table, of which the library makes a tuple, a subclass of it and two
lines of log each: that was half of what a call costs (docs/decisions/grpc.md). Huffman's texts and the fixed table are
the library's; a test holds the rest equal to it.

Source: RFC 7541.
"""

from __future__ import annotations

from collections.abc import Callable

from hpack.exceptions import HPACKDecodingError, OversizedHeaderListError
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

from .compiled import codecs
from .events import Headers

TABLE_BYTES = 4_096
_FIXED = ((b"", b""), *((bytes(name), bytes(value)) for name, value in HeaderTable.STATIC_TABLE))
_FIRST_OWN = len(_FIXED)
_FIELD_BYTES = 32  # counted for each field beside its name and value
_LONGEST_NUMBER = 1 << 28


class HeaderDecoder:
    """The table of one peer, and what it does to blocks."""

    __slots__ = ("_check", "_entries", "_limit", "_max_list_bytes", "_size", "list_bytes")

    def __init__(self, max_list_bytes: int, check: Callable[[bytes, bytes], object]) -> None:
        self._check = check  # sees each field that stands in a block as a text
        self._max_list_bytes = max_list_bytes
        self.list_bytes = 0
        """The size of the last block's fields, as limits count it."""
        self._entries: list[tuple[bytes, bytes]] = []  # the last is index 62
        self._size = 0
        self._limit = TABLE_BYTES

    def __repr__(self) -> str:
        return f"<HeaderDecoder {len(self._entries)} entries, {self._size} of {self._limit} bytes>"

    def decode(self, block: bytes) -> Headers:
        """Return the fields of a block.

        Raises:
            HPACKDecodingError: it is damaged.
            OversizedHeaderListError: it is too long.
        """
        if codecs is not None:
            found = codecs.decode_fields(block, _FIXED, self._entries, self._size, self._limit, self._max_list_bytes)
            if found is not None:
                headers, suspects, self._size, left = found
                for name, value in suspects:
                    self._check(name, value)
                self.list_bytes = self._max_list_bytes - left
                return headers
        try:
            return self._decode(block)
        except IndexError as error:
            raise HPACKDecodingError("a block ends early, or names what is not in the table") from error

    def _decode(self, block: bytes) -> Headers:
        headers: Headers = []
        at, end, left = 0, len(block), self._max_list_bytes
        while at < end:
            first = block[at]
            if first > 0x80:
                at += 1
                index = first & 0x7F
                if index == 0x7F:
                    index, at = _decode_rest(block, at, index)
                field = _FIXED[index] if index < _FIRST_OWN else self._find(index)
            elif first >= 0x40:
                field, at = self._decode_literal(block, at, 0x3F)
                self._add(field)
            elif first & 0xE0 == 0x20:
                at = self._resize(block, at, is_late=bool(headers))
                continue
            elif first == 0x80:
                raise HPACKDecodingError("index 0 is no field")
            else:
                field, at = self._decode_literal(block, at, 0x0F)
            left -= len(field[0]) + len(field[1]) + _FIELD_BYTES
            if left < 0:
                raise OversizedHeaderListError(f"headers are more than {self._max_list_bytes} bytes")
            headers.append(field)
        self.list_bytes = self._max_list_bytes - left
        return headers

    def _find(self, index: int) -> tuple[bytes, bytes]:
        return self._entries[_FIRST_OWN - 1 - index]

    def _add(self, field: tuple[bytes, bytes]) -> None:
        self._entries.append(field)
        self._size += len(field[0]) + len(field[1]) + _FIELD_BYTES
        if self._size > self._limit:
            self._evict()

    def _evict(self) -> None:
        gone = 0
        for name, value in self._entries:
            if self._size <= self._limit:
                break
            self._size -= len(name) + len(value) + _FIELD_BYTES
            gone += 1
        del self._entries[:gone]

    def _resize(self, block: bytes, at: int, *, is_late: bool) -> int:
        if is_late:
            raise HPACKDecodingError("the size of the table changes behind a field")
        size, at = _decode_number(block, at, 0x1F)
        if size > TABLE_BYTES:
            raise HPACKDecodingError(f"the table shall have {size} bytes, limit is {TABLE_BYTES}")
        self._limit = size
        self._evict()
        return at

    def _decode_literal(self, block: bytes, at: int, mask: int) -> tuple[tuple[bytes, bytes], int]:
        index, at = _decode_number(block, at, mask)
        if not index:
            name, at = _decode_text(block, at)
        elif index < _FIRST_OWN:
            name = _FIXED[index][0]
        else:
            name = self._find(index)[0]
        value, at = _decode_text(block, at)
        self._check(name, value)
        return (name, value), at


def _decode_number(block: bytes, at: int, mask: int) -> tuple[int, int]:
    """Return the number that begins in the low bits of a byte, and where it ends."""
    number = block[at] & mask
    return _decode_rest(block, at + 1, number) if number == mask else (number, at + 1)


def _decode_rest(block: bytes, at: int, number: int) -> tuple[int, int]:
    """Return a number that did not fit its first byte, and where it ends."""
    shift = 0
    while True:
        byte = block[at]
        at += 1
        number += (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
        if number >= _LONGEST_NUMBER or shift > 28:
            raise HPACKDecodingError("a number is too long")


def _decode_text(block: bytes, at: int) -> tuple[bytes, int]:
    is_huffman = block[at] >= 0x80
    size, at = _decode_number(block, at, 0x7F)
    text = block[at : at + size]
    if len(text) != size:
        raise HPACKDecodingError("a text ends behind its block")
    return decode_huffman(text) if is_huffman else text, at + size
