r"""The checksum of bodies and the checksum property of whole records (store.md "General conventions", §2.8).

The property is the last 20 bytes of a record and covers all bytes before it:

    __CRC32# \x01 + 10 decimal digits, least significant first, zeros at the right + \x02
"""

import zlib
from typing import Final

PROPERTY_CRC_BYTES: Final = 20
_PREFIX: Final = b"__CRC32#\x01"


def crc31(data: bytes | bytearray | memoryview) -> int:
    """Return CRC-32 without its top bit (``UtilAll.crc32``)."""
    return zlib.crc32(data) & 0x7FFFFFFF


def format_property_crc(crc: int) -> bytes:
    """Return the 20 bytes that end the properties of a record (``MessageDecoder.createCrc32``)."""
    return b"%s%s\x02" % (_PREFIX, f"{crc:010d}"[::-1].encode())
