"""Bodies between brokers and name servers (``spec/remoting.md`` §4.2, §5.5).

    103  RegisterBrokerBody, answered KVTable      322  DataVersion      21  TopicConfigTable      351  TopicConfig

A registration is JSON, or one zlib stream of

    int32 length | DataVersion JSON
    int32 topics | topics x { int32 length | "<topic> <read> <write> <perm> <filter type>[ <attributes JSON>]" }
    int32 length | filter servers, a JSON array
    int32 mappings | ...                             from senders of 5.0 on; not read

Rule: the first byte says which it is, whatever the header claims: 5.x senders announce ``compressed=false`` always.
"""

import struct
import zlib
from typing import Final

import msgspec
from msgspec import field

from ..common.errors import DecodeError
from .bodies import decode_body
from .fields import Int32, Int64

MAX_INFLATED_BYTES = 64 << 20
MAX_TOPICS: Final = 100_000
"""Of one registration: as many fit a frame as Java writes them, and they are taken in one turn of the loop."""
_LENGTH = struct.Struct(">i")


class DataVersion(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    """Which state of its topics a broker has announced; equal when all three are."""

    counter: Int64 = 0
    state_version: Int64 = 0
    timestamp: Int64 = 0


class TopicConfig(msgspec.Struct, rename="camel", kw_only=True):
    """A topic of a broker."""

    attributes: dict[str, str] = field(default_factory=dict[str, str])
    order: bool = False
    perm: Int32 = 6
    read_queue_nums: Int32 = 16
    topic_filter_type: str = "SINGLE_TAG"
    topic_name: str = ""
    topic_sys_flag: Int32 = 0
    write_queue_nums: Int32 = 16


class TopicConfigTable(msgspec.Struct, rename="camel", kw_only=True):
    """The topics of a broker (``TopicConfigSerializeWrapper``); the mapping tables of static topics are left out."""

    data_version: DataVersion = DataVersion()
    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict[str, TopicConfig])


class RegisterBrokerBody(msgspec.Struct, rename="camel", kw_only=True):
    """What a broker registers."""

    filter_server_list: list[str] = field(default_factory=list[str])
    topic_config_serialize_wrapper: TopicConfigTable = field(default_factory=TopicConfigTable)


class KVTable(msgspec.Struct, kw_only=True):
    """Texts by name."""

    table: dict[str, str] = field(default_factory=dict[str, str])


def encode_register_body(registration: RegisterBrokerBody) -> bytes:
    """Return a registration as JSON; at once, where ``encode_body`` would go from topic to topic."""
    return msgspec.json.encode(registration, order="sorted")


def decode_register_body(body: bytes) -> RegisterBrokerBody:
    """Return a registration, plain or compressed.

    Raises:
        DecodeError: it is neither.
    """
    if body[:1] != b"\x78":
        registration = decode_body(RegisterBrokerBody, body)
        _check_count(len(registration.topic_config_serialize_wrapper.topic_config_table))
        return registration
    data = _inflate(body)
    try:
        return _decode_inflated(data)
    except (struct.error, UnicodeDecodeError, ValueError) as error:
        raise DecodeError(f"the compressed registration of {len(data)} bytes is broken: {error}") from error


def _check_count(topics: int) -> None:
    if topics > MAX_TOPICS:
        raise DecodeError(f"the registration has {topics} topics, limit is {MAX_TOPICS}")


def _inflate(body: bytes) -> bytes:
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(body, MAX_INFLATED_BYTES)
    except zlib.error as error:
        raise DecodeError(f"the registration is no zlib stream: {error}") from error
    if stream.unconsumed_tail:
        raise DecodeError(f"the registration inflates to more than {MAX_INFLATED_BYTES} bytes")
    if not stream.eof:
        raise DecodeError(f"the zlib stream of the registration ends after {len(body)} bytes")
    return data


def _decode_inflated(data: bytes) -> RegisterBrokerBody:
    version, position = _take_text(data, 0)
    (count,) = _LENGTH.unpack_from(data, position)
    position += 4
    _check_count(count)
    topics: dict[str, TopicConfig] = {}
    for _ in range(count):
        text, position = _take_text(data, position)
        topic = _parse_topic(text.decode())
        topics[topic.topic_name] = topic
    filters, _ = _take_text(data, position)
    table = TopicConfigTable(data_version=decode_body(DataVersion, version), topic_config_table=topics)
    return RegisterBrokerBody(filter_server_list=decode_body(list[str], filters), topic_config_serialize_wrapper=table)


def _take_text(data: bytes, position: int) -> tuple[bytes, int]:
    (length,) = _LENGTH.unpack_from(data, position)
    start = position + 4
    if not 0 <= length <= len(data) - start:
        raise DecodeError(f"a text of the registration is {length} bytes, {len(data) - start} are left")
    return data[start : start + length], start + length


def _parse_topic(text: str) -> TopicConfig:
    name, reads, writes, perm, filter_type, *rest = text.split(" ", 5)
    return TopicConfig(
        topic_name=name,
        read_queue_nums=int(reads),
        write_queue_nums=int(writes),
        perm=int(perm),
        topic_filter_type=filter_type,
        attributes=decode_body(dict[str, str], rest[0].encode()) if rest else {},
    )
