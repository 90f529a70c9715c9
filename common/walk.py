"""The strict check of one stored record, which recovery and exports walk the log with.

Rules (store.md §7.2, §7.6; ``CommitLog.checkMessageAndReturnSize``; the layout is in ``record``):

- A record must be whole, have a known magic, lengths that add up, its own position, no negative queue offset, and at
  least the head of a blank (``BLANK_BYTES``) behind it in the file.
- A blank ends the file. Zeros are the unwritten end. Everything else is damage of one named kind.
"""

import struct
import zlib
from enum import IntEnum
from typing import Final

from .sysflag import BORN_HOST_V6, HOSTS_V6, STORE_HOST_V6

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
MAGIC_BLANK: Final = 0xCBD43194
BLANK_BYTES: Final = 8

# TOTALSIZE, MAGIC, BODYCRC, QUEUEOFFSET, PHYSICALOFFSET, SYSFLAG, BODYLENGTH (for IPv4 hosts)
_SKETCH: Final = struct.Struct(">iIi8xqqi44xi")
_INT: Final = struct.Struct(">i")
_BLANK: Final = struct.Struct(">iI")
_BODY_AT: Final = {0: 88, BORN_HOST_V6: 100, STORE_HOST_V6: 100, HOSTS_V6: 112}

Buffer = bytes | bytearray | memoryview


class Verdict(IntEnum):
    """Why there is no record; as a number never positive, so that it cannot be taken for a size."""

    BLANK = 0
    ZEROS = -1
    TORN = -2
    MAGIC = -3
    LENGTHS = -4
    PLACE = -5
    ROOM = -6
    BODY_CRC = -7
    SEAL = -8
    QUEUE_OFFSET = -9

    @property
    def is_damage(self) -> bool:
        """Whether something that is not a record was written here."""
        return self < Verdict.ZEROS

    @property
    def reason(self) -> str:
        """The verdict in words."""
        return _REASONS[self]


_REASONS: Final = {
    Verdict.BLANK: "the blank that ends the file",
    Verdict.ZEROS: "nothing was written",
    Verdict.TORN: "the record is longer than what is left of the file",
    Verdict.MAGIC: "the magic is unknown",
    Verdict.LENGTHS: "the lengths of the parts do not add up to the size of the record",
    Verdict.PLACE: "the record names another position in the log",
    Verdict.QUEUE_OFFSET: "the record has a negative offset in its queue",
    Verdict.ROOM: "the record leaves no room for a blank in the file",
    Verdict.BODY_CRC: "the body does not have its checksum",
    Verdict.SEAL: "the record does not end in its checksum",
}


def check_record(
    buffer: Buffer, position: int, log_offset: int, *, checks_crc: bool = True, reserved_bytes: int = BLANK_BYTES
) -> int:
    """Return the size of the record at the position, or a ``Verdict`` (which is 0 or negative).

    ``buffer`` is a segment, ``log_offset`` the position in the log that the record must name. ``reserved_bytes`` are
    the bytes that must follow the record; 0 where the buffer ends before its file.
    """
    room = len(buffer) - position
    try:
        size, magic, body_crc, queue_offset, named_offset, sys_flag, body_length = _SKETCH.unpack_from(buffer, position)
        body_at = position + 88
        if sys_flag & HOSTS_V6:
            body_at = position + _BODY_AT[sys_flag & HOSTS_V6]
            (body_length,) = _INT.unpack_from(buffer, body_at - 4)
    except struct.error:
        return _check_short(buffer, position)
    if magic not in (MAGIC_V1, MAGIC_V2):
        return _foreign_magic(size, magic)
    if size > room:
        return Verdict.TORN
    if body_length < 0 or not find_properties(buffer, body_at + body_length, position + size, magic):
        return Verdict.LENGTHS
    if named_offset != log_offset:
        return Verdict.PLACE
    if queue_offset < 0:
        return Verdict.QUEUE_OFFSET
    if size > room - reserved_bytes:
        return Verdict.ROOM
    if checks_crc and body_length and zlib.crc32(buffer[body_at : body_at + body_length]) & 0x7FFFFFFF != body_crc:
        return Verdict.BODY_CRC
    return size


def find_properties(buffer: Buffer, topic_at: int, end: int, magic: int) -> int:
    """Return where the properties begin, or 0 when topic and properties do not fill the bytes up to the end.

    ``topic_at`` is the place of the topic's length, ``end`` the end of the record, which must be inside the buffer.
    """
    if topic_at + 3 > end:
        return 0
    topic_length = buffer[topic_at]
    if magic == MAGIC_V1:
        size_at = topic_at + 1 + topic_length if topic_length < 128 else end
    else:
        topic_length = topic_length << 8 | buffer[topic_at + 1]
        size_at = topic_at + 2 + topic_length if topic_length < 32_768 else end
    if size_at + 2 > end:
        return 0
    size = buffer[size_at] << 8 | buffer[size_at + 1]
    return size_at + 2 if size_at + 2 + size == end and size < 32_768 else 0


def _check_short(buffer: Buffer, position: int) -> Verdict:
    rest = buffer[position : position + _BLANK.size]
    if len(rest) < _BLANK.size:
        return Verdict.TORN
    size, magic = _BLANK.unpack_from(rest)
    return Verdict.TORN if magic in (MAGIC_V1, MAGIC_V2) else _foreign_magic(size, magic)


def _foreign_magic(size: int, magic: int) -> Verdict:
    if magic == MAGIC_BLANK:
        return Verdict.BLANK
    return Verdict.ZEROS if size == magic == 0 else Verdict.MAGIC
