"""Bodies of registrations, of routes and of a name server's lists (``spec/remoting.md`` §4.2, §5.3 to §5.5).

    103  RegisterBrokerBody, answered KVTable      322  DataVersion      21  TopicConfigTable      351  TopicConfig
    105  TopicRouteData      106  ClusterInfo      206, 224, 304  TopicList      901  BrokerMemberGroupBody

A registration is JSON, or one zlib stream of

    int32 length | DataVersion JSON
    int32 topics | topics x { int32 length | "<topic> <read> <write> <perm> <filter type>[ <attributes JSON>]" }
    int32 length | filter servers, a JSON array
    int32 mappings | ...                             from senders of 5.0 on; not read

Rules
    1. The first byte says which it is, whatever the header claims: 5.x senders announce ``compressed=false`` always.
    2. What we compress says so in its header, since Java's name server goes by that.
    3. The compressed form has no place for ``topicSysFlag``: topics that have one go plain while a frame holds them.
    4. The strictest readers of routes (Go splits text, pyrocketmq reads Python) want ``queue_datas`` and
       ``broker_datas`` always there, and ``enable_acting_master`` only when true, hence ``None`` instead of ``False``.
"""

import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec
from msgspec import field

from ...common.compression import inflate_zlib
from ...common.errors import DecodeError
from ...common.java_json import Int32
from ...common.metadata import DataVersion, TopicConfig, TopicConfigTable
from ..codec.frames import MAX_FRAME_BYTES
from .body import decode_body

T = TypeVar("T")
MAX_INFLATED_BYTES = 64 << 20
MAX_TOPICS: Final = 100_000
"""Of one registration: they are taken in one turn of the loop, in about a microsecond each when compressed."""
MAX_PLAIN_TOPICS: Final = 10_000
"""Of a registration that is not compressed: they cost the loop some milliseconds."""
_MAX_BODY_BYTES = MAX_FRAME_BYTES - (1 << 16)  # the rest is for the header
_FASTEST = 1  # zlib's level: names of topics shrink to a twentieth, the slowest makes them a tenth smaller still
_NO_FILTERS = b"[]"
_NO_MAPPINGS = b"\0\0\0\0"
_LENGTH = struct.Struct(">i")


class RegisterBrokerBody(msgspec.Struct, rename="camel", kw_only=True):
    """What a broker registers."""

    filter_server_list: list[str] = field(default_factory=list[str])
    topic_config_serialize_wrapper: TopicConfigTable = field(default_factory=TopicConfigTable)


class KVTable(msgspec.Struct, kw_only=True):
    """Texts by name."""

    table: dict[str, str] = field(default_factory=dict[str, str])


class EncodedRegistration(NamedTuple):
    """The body of a registration, and what its header says of it."""

    body: bytes
    is_compressed: bool


def encode_registration(topics: Sequence[TopicConfig], version: DataVersion) -> EncodedRegistration | None:
    """Return a registration, compressed if it is long, or None if it is too long for one; any thread may ask."""
    is_plain = len(topics) <= MAX_PLAIN_TOPICS or any(topic.topic_sys_flag for topic in topics)
    if len(topics) > MAX_TOPICS:
        return None
    if is_plain and len(body := _encode_plain(topics, version)) <= _MAX_BODY_BYTES:
        return EncodedRegistration(body, is_compressed=False)
    data = b"".join(_encode_texts(topics, version))
    body = zlib.compress(data, _FASTEST)
    is_taken = len(data) <= MAX_INFLATED_BYTES and len(body) <= _MAX_BODY_BYTES
    return EncodedRegistration(body, is_compressed=True) if is_taken else None


def _encode_plain(topics: Iterable[TopicConfig], version: DataVersion) -> bytes:
    table = TopicConfigTable(data_version=version, topic_config_table={topic.topic_name: topic for topic in topics})
    # at once, where ``encode_body`` would go from topic to topic
    return msgspec.json.encode(RegisterBrokerBody(topic_config_serialize_wrapper=table), order="sorted")


def _encode_texts(topics: Sequence[TopicConfig], version: DataVersion) -> Iterable[bytes]:
    yield _with_length(msgspec.json.encode(version, order="sorted"))
    yield _LENGTH.pack(len(topics))
    for topic in topics:
        text = (
            f"{topic.topic_name} {topic.read_queue_nums} {topic.write_queue_nums} {topic.perm} "
            f"{topic.topic_filter_type} {msgspec.json.encode(topic.attributes, order='sorted').decode()}"
        )
        yield _with_length(text.encode())
    yield _with_length(_NO_FILTERS)
    yield _NO_MAPPINGS


def _with_length(text: bytes) -> bytes:
    return _LENGTH.pack(len(text)) + text


def decode_registration(body: bytes, take: Callable[[TopicConfig], T]) -> tuple[DataVersion, dict[str, T]]:
    """Return the version of a registration, plain or compressed, and of each topic what ``take`` makes of it.

    Topics that differ by their names alone may share one result, so ``take`` is not to look at the name.

    Raises:
        DecodeError: it is neither.
    """
    if body[:1] != b"\x78":
        table = decode_body(RegisterBrokerBody, body).topic_config_serialize_wrapper
        _check_count(len(table.topic_config_table))
        return table.data_version, {name: take(topic) for name, topic in table.topic_config_table.items()}
    data = inflate_zlib(body, MAX_INFLATED_BYTES)
    try:
        return _decode_inflated(data, take)
    except (struct.error, UnicodeDecodeError, ValueError) as error:
        raise DecodeError(f"the compressed registration of {len(data)} bytes is broken: {error}") from error


def _check_count(topics: int) -> None:
    if topics > MAX_TOPICS:
        raise DecodeError(f"the registration has {topics} topics, limit is {MAX_TOPICS}")


def _decode_inflated(data: bytes, take: Callable[[TopicConfig], T]) -> tuple[DataVersion, dict[str, T]]:
    version, position = _take_text(data, 0)
    (count,) = _LENGTH.unpack_from(data, position)
    position += 4
    _check_count(count)
    topics: dict[str, T] = {}
    taken: dict[str, T] = {}  # most topics are described alike: with this, 60,000 cost 50 ms and not 300
    for _ in range(count):
        text, position = _take_text(data, position)
        name, _, description = text.decode().partition(" ")
        if description not in taken:
            taken[description] = take(_parse_description(description))
        topics[name] = taken[description]
    _take_text(data, position)  # the filter servers
    return decode_body(DataVersion, version), topics


def _take_text(data: bytes, position: int) -> tuple[bytes, int]:
    (length,) = _LENGTH.unpack_from(data, position)
    start = position + 4
    if not 0 <= length <= len(data) - start:
        raise DecodeError(f"a text of the registration is {length} bytes, {len(data) - start} are left")
    return data[start : start + length], start + length


def _parse_description(text: str) -> TopicConfig:
    reads, writes, perm, filter_type, *rest = text.split(" ", 4)
    return TopicConfig(
        read_queue_nums=int(reads),
        write_queue_nums=int(writes),
        perm=int(perm),
        topic_filter_type=filter_type,
        attributes=decode_body(dict[str, str], rest[0].encode()) if rest else {},
    )


MASTER_ID = 0


class BrokerData(msgspec.Struct, rename="camel", kw_only=True):
    """The addresses of one broker name, by broker id."""

    broker_addrs: dict[int, str] = field(default_factory=dict[int, str])
    broker_name: str = ""
    cluster: str | None = None
    enable_acting_master: bool | None = None
    zone_name: str | None = None


class QueueData(msgspec.Struct, rename="camel", kw_only=True):
    """How many queues of a topic one broker name has."""

    broker_name: str = ""
    read_queue_nums: Int32 = 0
    write_queue_nums: Int32 = 0
    perm: Int32 = 0
    topic_sys_flag: Int32 = 0
    old_topic_sys_flag: Int32 | None = field(name="topicSynFlag", default=None)

    def __post_init__(self) -> None:
        if self.old_topic_sys_flag is not None:  # 4.x wrote it so; never written by us
            self.topic_sys_flag, self.old_topic_sys_flag = self.old_topic_sys_flag, None


class TopicRouteData(msgspec.Struct, rename="camel", kw_only=True):
    """Where a topic is."""

    broker_datas: list[BrokerData] = field(default_factory=list[BrokerData])
    filter_server_table: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = field(default_factory=list[QueueData])


class ClusterInfo(msgspec.Struct, rename="camel", kw_only=True):
    """All brokers, and which cluster has which."""

    broker_addr_table: dict[str, BrokerData] = field(default_factory=dict[str, BrokerData])
    cluster_addr_table: dict[str, list[str]] = field(default_factory=dict[str, list[str]])


class TopicList(msgspec.Struct, rename="camel", kw_only=True):
    """Names of topics; the address only with the system topics of a name server."""

    broker_addr: str | None = None
    topic_list: list[str] = field(default_factory=list[str])


class BrokerMemberGroup(msgspec.Struct, rename="camel", kw_only=True):
    """A master and its slaves."""

    broker_addrs: dict[int, str] = field(default_factory=dict[int, str])
    broker_name: str
    cluster: str


class BrokerMemberGroupBody(msgspec.Struct, rename="camel", kw_only=True):
    """The answer to 901."""

    broker_member_group: BrokerMemberGroup
