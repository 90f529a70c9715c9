"""Java's string hash, which tag filters and the key index are built on.

    h = 31 * h + unit   over the UTF-16 units of the text, as a signed 32-bit number

The hash is a number whose digits to the base 31 are the units. ``int(digits, 31)`` works such a number out at the speed
of C for digits below 31, so each byte is split into a quotient and a remainder by 31: two conversions for Latin-1 text,
four for other text. For a unique key that is a quarter of the loop's time, and needs no table of earlier texts.

The checksum property of whole records is their last 20 bytes and covers all bytes before it (store.md "General
conventions", §2.8):

    __CRC32# 0x01, 10 decimal digits, least significant first, zeros at the right, 0x02
"""

import zlib
from functools import lru_cache
from typing import Final

PROPERTY_CRC_BYTES: Final = 20
_PREFIX: Final = b"__CRC32#\x01"
_DIGITS: Final = b"0123456789abcdefghijklmnopqrstu"
_QUOTIENTS: Final = bytes(_DIGITS[byte // 31] for byte in range(256))
_REMAINDERS: Final = bytes(_DIGITS[byte % 31] for byte in range(256))
_CHUNK: Final = 256  # conversions take quadratic time, and Python refuses very long ones
_CACHED_CHARACTERS: Final = 64


def java_hash(text: str) -> int:
    """Return ``String.hashCode`` of the text, signed 32 bit."""
    if not text:
        return 0
    if len(text) > _CHUNK:
        value = _hash_long(text)
    elif text.isascii():
        data = text.encode("ascii")
        value = 31 * int(data.translate(_QUOTIENTS), 31) + int(data.translate(_REMAINDERS), 31)
    else:
        value = _hash_units(text)
    return (value + 0x80000000 & 0xFFFFFFFF) - 0x80000000


def tags_code(tags: str | None) -> int:
    """Return what a consume queue entry holds for the tag (``MessageExtBrokerInner.tagsString2tagsCode``)."""
    if not tags:
        return 0
    return _cached_hash(tags) if len(tags) <= _CACHED_CHARACTERS else java_hash(tags)


def index_hash(text: str) -> int:
    """Return the hash of an index key: its absolute value, 0 where that overflows (``IndexFile``)."""
    value = abs(java_hash(text))
    return 0 if value == 0x80000000 else value


_cached_hash = lru_cache(maxsize=1024)(java_hash)


def _evaluate(data: bytes) -> int:
    return 31 * int(data.translate(_QUOTIENTS), 31) + int(data.translate(_REMAINDERS), 31)


def _hash_units(text: str) -> int:
    data = text.encode("utf-16-be", "surrogatepass")
    return (_evaluate(data[::2]) << 8) + _evaluate(data[1::2])


def _hash_long(text: str) -> int:
    value = 0
    for start in range(0, len(text), _CHUNK):
        chunk = text[start : start + _CHUNK]
        units = len(chunk.encode("utf-16-be", "surrogatepass")) // 2
        value = (value * pow(31, units, 1 << 32) + _hash_units(chunk)) & 0xFFFFFFFF
    return value


def crc31(data: bytes | bytearray | memoryview) -> int:
    """Return CRC-32 without its top bit (``UtilAll.crc32``)."""
    return zlib.crc32(data) & 0x7FFFFFFF


def format_property_crc(crc: int) -> bytes:
    """Return the 20 bytes that end the properties of a record (``MessageDecoder.createCrc32``)."""
    return b"%s%s\x02" % (_PREFIX, f"{crc:010d}"[::-1].encode())
