"""Stored records, and the records of a batch, as bytes (store.md §2, remoting.md §6.2 and §6.3).

A stored record; all numbers are big-endian and signed, offsets are for IPv4 hosts (an IPv6 host has 20 bytes):

    TOTALSIZE 4 | MAGIC 4 | BODYCRC 4 | QUEUEID 4 | FLAG 4 | QUEUEOFFSET 8 | PHYSICALOFFSET 8 | SYSFLAG 4       to 40
    BORNTIMESTAMP 8 | BORNHOST 8 | STORETIMESTAMP 8 | STOREHOST 8 | RECONSUMETIMES 4
    PREPAREDTRANSACTIONOFFSET 8 | BODYLENGTH 4                                                                 to 88
    BODY | TOPICLENGTH 1 (v2: 2) | TOPIC | PROPERTIESLENGTH 2 | PROPERTIES

A batch record:

    TOTALSIZE 4 | MAGIC 4 = 0 | BODYCRC 4 = 0 | FLAG 4 | BODYLENGTH 4 | BODY | PROPERTIESLENGTH 2 | PROPERTIES

Rules:

- Bytes that are not a record raise ``RecordError`` and nothing else. Topics that are not UTF-8 read as U+FFFD.
- v2 is written only for topics above 127 bytes, since old clients cannot read it.
- The last record of a file is followed by at least ``BLANK_BYTES``: the head of the blank that fills the file.

Rules of the strict check, which recovery and exports walk the log with (``check_record``; store.md §7.2, §7.6):

- A record must be whole, have a known magic, lengths that add up, its own position, no negative queue offset, and at
  least the head of a blank (``BLANK_BYTES``) behind it in the file.
- A blank ends the file. Zeros are the unwritten end. Everything else is damage of one named kind.

This module does not know files. Records become messages in ``record_messages.py``. What runs for each message of a
batch, or for each that a filter looks at, has a compiled twin (``_codecs.pyx``), where ``properties.py`` has found any.
"""

import struct
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple, cast

import msgspec

from .compression import inflate
from .errors import RecordError
from .message import BORN_HOST_V6, HOSTS_V6, STORE_HOST_V6
from .properties import (
    MAX_PROPERTIES_BYTES,
    PROPERTY_CRC_BYTES,
    UNIQ_KEY,
    codecs,
    crc31,
    find_value,
    format_property_crc,
    parse_properties,
)

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


def read_property_text(log: memoryview, start: int, end: int) -> bytes:
    """Return the text of the properties of a stored record; without sound lengths none.

    Of the other fields only those that say where it is are looked at.
    """
    magic, sys_flag, body_length = _LENGTHS.unpack_from(log, start)
    body_at = start + RECORD_HEAD.size
    if sys_flag & HOSTS_V6:
        body_at = start + _BODY_AT[sys_flag & HOSTS_V6]
        (body_length,) = _INT.unpack_from(log, body_at - 4)
    properties_at = find_properties(log, body_at + body_length, end, magic) if body_length >= 0 else 0
    return bytes(log[properties_at:end]) if properties_at else b""


def find_values(log: memoryview, start: int, end: int, marks: tuple[bytes, ...]) -> tuple[bytes | None, ...]:
    """Return the values of names in the properties of a stored record, as ``properties.find_value`` does for each."""
    found = None if codecs is None else codecs.find_values(log, start, end, marks)
    if found is None:
        text = read_property_text(log, start, end)
        found = tuple([find_value(text, mark) for mark in marks])
    return found


MAX_TOPIC_BYTES: Final = 32_767
MAX_V1_TOPIC_BYTES: Final = 127

RECORD_HEAD: Final = struct.Struct(">iIiiiqqiq8sq8siqi")
_LENGTHS: Final = struct.Struct(">4xI28xi44xi")  # of a record: magic, sysFlag, and the body's length
_HEADS: Final = {
    (8, 8): (RECORD_HEAD, 0),
    (20, 8): (struct.Struct(">iIiiiqqiq20sq8siqi"), BORN_HOST_V6),
    (8, 20): (struct.Struct(">iIiiiqqiq8sq20siqi"), STORE_HOST_V6),
    (20, 20): (struct.Struct(">iIiiiqqiq20sq20siqi"), HOSTS_V6),
}
_HEADS_BY_FLAG: Final = {flag: head for head, flag in _HEADS.values()}
_BATCH_HEAD: Final = struct.Struct(">IIIii")
_BATCH_OVERHEAD_BYTES: Final = _BATCH_HEAD.size + 2
_BATCH_SIZES: Final = struct.Struct(">12xii")
_RUN_HEAD: Final = struct.Struct(">iIiiiqq")
_HeadValues = tuple[int, int, int, int, int, int, int, int, int, bytes, int, bytes, int, int]


class NewRecord(msgspec.Struct, gc=False):
    """What a sender hands to the store."""

    topic: str
    queue_id: int
    body: bytes
    property_text: bytes
    parsed: dict[str, str] | None
    """The properties, once somebody has asked for them."""
    flag: int
    sys_flag: int
    born_at_ms: int
    born_host: bytes
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0

    @property
    def properties(self) -> dict[str, str]:
        """Return the properties, which are parsed when they are needed first."""
        parsed = self.parsed
        if parsed is None:
            self.parsed = parsed = parse_properties(self.property_text)
        return parsed


class Record(msgspec.Struct, frozen=True, gc=False):
    """A stored record; ``body`` is a slice of the buffer that it was read from, as stored."""

    total_size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    log_offset: int
    sys_flag: int
    born_at_ms: int
    born_host: bytes
    stored_at_ms: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes | bytearray | memoryview
    topic: str
    property_text: bytes

    @property
    def properties(self) -> dict[str, str]:
        """The properties, parsed anew at each use."""
        return parse_properties(self.property_text)

    def __str__(self) -> str:
        place = f"{self.topic} queue {self.queue_id} offset {self.queue_offset}, log offset {self.log_offset}"
        return f"message {self.properties.get(UNIQ_KEY, 'without a unique key')} ({place})"

    @property
    def is_body_intact(self) -> bool:
        """Whether the stored body has its checksum; an empty one needs none."""
        return not self.body or crc31(self.body) == self.body_crc

    def inflated_body(self) -> bytes:
        """Return the body as the producer gave it (raises what ``compression.inflate`` does)."""
        return inflate(self.body, self.sys_flag)


class BatchPart(NamedTuple):
    """One message of a batch."""

    flag: int
    body: bytes
    property_text: bytes


PlainPart = tuple[int, bytes, bytes]
"""The same in the same order, for those who make many."""


def encode_record(new: NewRecord, queue_offset: int, log_offset: int, stored_at_ms: int, store_host: bytes) -> bytes:
    """Return the bytes of a record at its place in the log.

    Raises:
        ValueError: A part does not fit its field.
    """
    topic, topic_size, magic = _topic_field(new.topic)
    if codecs is not None and magic == MAGIC_V1:
        record = codecs.encode_record(new, topic, queue_offset, log_offset, stored_at_ms, store_host)
        if record is not None:
            return record
    body, properties, born_host = new.body, new.property_text, new.born_host
    body_size, size = len(body), len(properties)
    if size > MAX_PROPERTIES_BYTES:
        raise ValueError(f"properties are {size} bytes, limit is {MAX_PROPERTIES_BYTES}")
    try:
        is_usual = len(born_host) == 8 == len(store_host)
        head, host_flags = (RECORD_HEAD, 0) if is_usual else _HEADS[len(born_host), len(store_host)]
        packed = head.pack(
            head.size + body_size + topic_size + 2 + size,
            magic,
            zlib.crc32(body) & 0x7FFFFFFF,
            new.queue_id,
            new.flag,
            queue_offset,
            log_offset,
            new.sys_flag & ~HOSTS_V6 | host_flags,
            new.born_at_ms,
            born_host,
            stored_at_ms,
            store_host,
            new.reconsume_times,
            new.prepared_transaction_offset,
            body_size,
        )
    except KeyError:
        raise ValueError(f"hosts are {len(born_host)} and {len(store_host)} bytes, not 8 or 20") from None
    except struct.error as error:
        raise ValueError(f"record does not fit its fields: {error}") from error
    return b"".join((packed, body, topic, size.to_bytes(2, "big"), properties))


def encode_records(
    head: NewRecord, parts: list[PlainPart], place: tuple[int, int], stored_at_ms: int, store_host: bytes
) -> tuple[bytes, list[int]]:
    """Return the bytes of records that follow each other, and the size of each.

    They are messages of one batch; what these do not say themselves is that of ``head``. ``place`` is the queue offset
    and the log offset of the first one.

    Raises:
        ValueError: A part does not fit its field.
    """
    queue_offset, log_offset = place
    topic, topic_size, magic = _topic_field(head.topic)
    begin = encode_record(head, queue_offset, log_offset, stored_at_ms, store_host)
    begin = begin[: -6 - topic_size - len(head.body) - len(head.property_text)]  # without the length of the body
    if codecs is not None and (encoded := codecs.encode_records(begin, parts, topic, queue_offset, log_offset)):
        return encoded
    common, fixed_size, queue_id = begin[_RUN_HEAD.size :], len(begin) + topic_size + 6, head.queue_id
    pieces: list[bytes] = []
    sizes: list[int] = []
    for flag, body, text in parts:
        if len(text) > MAX_PROPERTIES_BYTES:
            raise ValueError(f"properties are {len(text)} bytes, limit is {MAX_PROPERTIES_BYTES}")
        size = fixed_size + len(body) + len(text)
        crc = zlib.crc32(body) & 0x7FFFFFFF
        pieces += (
            _pack_run_head(size, magic, crc, queue_id, flag, queue_offset, log_offset),
            common,
            len(body).to_bytes(4, "big"),
            body,
            topic,
            len(text).to_bytes(2, "big"),
            text,
        )
        sizes.append(size)
        queue_offset += 1
        log_offset += size
    return b"".join(pieces), sizes


@lru_cache(maxsize=4096)
def _topic_field(topic: str) -> tuple[bytes, int, int]:
    """Return the topic with its length before it, how long both are, and the magic of such records."""
    data = topic.encode()
    if len(data) <= MAX_V1_TOPIC_BYTES:
        return bytes((len(data),)) + data, len(data) + 1, MAGIC_V1
    if len(data) > MAX_TOPIC_BYTES:
        raise ValueError(f"topic is {len(data)} bytes, limit is {MAX_TOPIC_BYTES}")
    return len(data).to_bytes(2, "big") + data, len(data) + 2, MAGIC_V2


def reserve_property_crc(property_text: bytes) -> bytes:
    """Return the properties with room for the record's checksum at their end (``enabledAppendPropCRC``).

    The record made of them is finished by ``seal_property_crc``. A checksum that the sender gave is removed.
    """
    if b"__CRC32#\x01" in property_text:
        chunks = property_text.split(b"\x02")
        property_text = b"\x02".join([chunk for chunk in chunks if not chunk.startswith(b"__CRC32#\x01")])
    separator = b"\x02" if property_text and not property_text.endswith(b"\x02") else b""
    return property_text + separator + format_property_crc(0)


def seal_property_crc(record: bytes) -> bytes:
    """Return the record with the checksum of all bytes before it in its last 20 bytes (store.md §2.8)."""
    content = record[:-PROPERTY_CRC_BYTES]
    return content + format_property_crc(crc31(content))


def has_sealed_crc(record: Buffer) -> bool:
    """Tell whether the whole record ends in its right checksum property (``forceVerifyPropCRC``)."""
    return bytes(record[-PROPERTY_CRC_BYTES:]) == format_property_crc(crc31(record[:-PROPERTY_CRC_BYTES]))


def decode_record(buffer: Buffer, position: int = 0) -> Record:
    """Return the record that starts at the position; checksums are left to the caller.

    Raises:
        RecordError: There is no whole record.
    """
    try:
        fields = RECORD_HEAD.unpack_from(buffer, position)
        head_size = 88
        if fields[7] & HOSTS_V6:
            head = _HEADS_BY_FLAG[fields[7] & HOSTS_V6]
            fields = head.unpack_from(buffer, position)
            head_size = head.size
    except struct.error:
        raise RecordError(f"record at {position}: {len(buffer) - position} bytes are fewer than its head") from None
    total_size, magic, body_length = fields[0], fields[1], fields[14]
    end, body_at = position + total_size, position + head_size
    topic_at = body_at + body_length
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise RecordError(f"record at {position}: magic is {magic:#010x}")
    if end > len(buffer) or body_length < 0:
        raise RecordError(f"record at {position}: body is {body_length} bytes, record {total_size} of {len(buffer)}")
    properties_at = find_properties(buffer, topic_at, end, magic)
    if not properties_at:
        raise RecordError(f"record at {position}: topic or properties do not end at its {total_size} bytes")
    topic_from = topic_at + (1 if magic == MAGIC_V1 else 2)
    return Record(
        *cast("_HeadValues", fields[:14]),
        buffer[body_at:topic_at],
        str(buffer[topic_from : properties_at - 2], "utf-8", "replace"),
        bytes(buffer[properties_at:end]),
    )


def iter_records(buffer: Buffer) -> Iterator[Record]:
    """Yield the records of a pull answer, which stand one behind the other.

    Raises:
        RecordError: The rest is not a record; those before it have been yielded.
    """
    position = 0
    while position < len(buffer):
        record = decode_record(buffer, position)
        yield record
        position += record.total_size


def encode_batch(parts: Iterable[tuple[int, bytes, bytes]]) -> bytes:
    """Return the body of a batch request (``MessageDecoder.encodeMessages``).

    Raises:
        ValueError: A part does not fit its field.
    """
    parts = list(parts)
    if codecs is not None and (encoded := codecs.encode_batch(parts)) is not None:
        return encoded
    pieces: list[bytes] = []
    try:
        for flag, body, properties in parts:
            body_size, size = len(body), len(properties)
            if size > MAX_PROPERTIES_BYTES:
                raise ValueError(f"properties are {size} bytes, limit is {MAX_PROPERTIES_BYTES}")
            head = _pack_batch_head(_BATCH_OVERHEAD_BYTES + body_size + size, 0, 0, flag, body_size)
            pieces += (head, body, size.to_bytes(2, "big"), properties)
    except struct.error as error:
        raise ValueError(f"batch record does not fit its fields: {error}") from error
    return b"".join(pieces)


def encode_batch_part(flag: int, body: bytes, properties: bytes) -> bytes:
    """Return one message of the body of a batch request.

    Raises:
        ValueError: A part does not fit its field.
    """
    return encode_batch(((flag, body, properties),))


def decode_batch(body: Buffer) -> list[BatchPart]:
    """Return the messages of a batch body (raises as ``split_batch`` does)."""
    return [BatchPart(*part) for part in split_batch(bytes(body))]


def split_batch(body: bytes, most: int = sys.maxsize) -> list[PlainPart]:
    """Return the messages of a batch body; size, magic and checksum of each are ignored, as Java's broker does.

    Raises:
        RecordError: A length does not fit the body, or there are more messages than ``most``.
    """
    if codecs is not None and (found := codecs.split_batch(body, most)) is not None:
        return found
    parts: list[PlainPart] = []
    position, end, flag, length = 0, len(body), 0, 0
    try:
        while position < end:
            flag, length = _unpack_batch_sizes(body, position)
            body_at: int = position + 20
            size_at: int = body_at + length
            size = body[size_at] << 8 | body[size_at + 1]
            position = size_at + 2 + size
            if length < 0 or size > MAX_PROPERTIES_BYTES or position > end:
                raise RecordError(f"batch record: body of {length} and properties of {size} bytes end after {end}")
            if len(parts) == most:
                raise RecordError(f"batch of {end} bytes holds more than {most} messages")
            parts.append((flag, body[body_at:size_at], body[size_at + 2 : position]))
    except struct.error:
        raise RecordError(f"batch record at {position}: {end - position} bytes are left") from None
    except IndexError:
        raise RecordError(f"batch record at {position}: body of {length} bytes ends after {end}") from None
    return parts


_unpack_batch_sizes: Callable[[bytes, int], tuple[int, int]] = _BATCH_SIZES.unpack_from
_pack_batch_head: Callable[[int, int, int, int, int], bytes] = _BATCH_HEAD.pack
_pack_run_head: Callable[..., bytes] = _RUN_HEAD.pack
