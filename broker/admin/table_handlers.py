"""The adapter of the wire for whole tables, as slaves and administrators ask for them (spec replication.md §7).

21   GET_ALL_TOPIC_CONFIG     topics         201  GET_ALL_SUBSCRIPTIONGROUP_CONFIG  groups
43   GET_ALL_CONSUMER_OFFSET  their offsets  45   GET_ALL_DELAY_OFFSET              those of the delay levels

Topics and groups go out in pages of ``MOST_ENTRIES``, in the order of their names, to who says where a page begins; it
begins at the first name when the table is not that of the version which he has seen before. Who says nothing gets the
whole table. A slave asks each minute, so a page is made in a few milliseconds.

Upstream: ``AdminBrokerProcessor``, ``TopicConfigManager.subTopicConfigTable``.
"""

from collections.abc import Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from ...common.codes import ResponseCode
from ...common.java_json import write_json
from ...common.metadata import DataVersion, SubscriptionGroupConfig, TopicConfig
from ...remoting.bodies.body import decode_body
from ...remoting.bodies.replication import TopicTables, encode_numbered, encode_settings
from ...remoting.codec.command import Command, decode_header
from ...remoting.codec.request_codes import RequestCode as Code
from ...remoting.headers.replication import GroupPageHeader, GroupPageReply, TopicPageHeader, TopicPageReply
from ...remoting.transport.connection import Connection
from ...remoting.transport.server import answers
from ..delay.delay_progress import DelayProgress
from ..group.groups import GroupTable, OffsetTable
from ..topic.topics import TopicTable

MOST_ENTRIES: Final = 2_000
"""Of a page (``splitMetadataSize``)."""
T = TypeVar("T")


class _Wish(NamedTuple):
    """Which page somebody wants; of what he does not say Java takes the first, and as many as there may be."""

    first: int | None
    version: str | None
    most: int | None


class _Pages(Generic[T]):
    """Cuts pages out of a table; its names are sorted once for each version."""

    def __init__(self) -> None:
        self._version: DataVersion | None = None
        self._names: list[str] = []

    def cut(self, table: Mapping[str, T], version: DataVersion, wish: _Wish) -> Mapping[str, T]:
        """Return a page (raises ``JsonError`` for a version that is none)."""
        if wish == (None, None, None):
            return table
        if version != self._version or len(table) != len(self._names):
            self._version, self._names = version, sorted(table)
        seen = (wish.version or "").strip()
        is_next = bool(seen) and decode_body(DataVersion, seen.encode()) == version
        first = max(0, wish.first or 0) if is_next else 0
        most = MOST_ENTRIES if wish.most is None else min(max(1, wish.most), MOST_ENTRIES)
        return {name: table[name] for name in self._names[first : first + most]}


class SettingTables:
    """Answers with topics and groups."""

    def __init__(self, topics: TopicTable, groups: GroupTable, now_ms: int) -> None:
        self._topics = topics
        self._groups = groups
        self._topic_pages = _Pages[TopicConfig]()
        self._group_pages = _Pages[SubscriptionGroupConfig]()
        self._mapping_version = DataVersion(timestamp=now_ms)  # of the static topics, of which there are none

    @answers(Code.GET_ALL_TOPIC_CONFIG)
    def tell_topics(self, command: Command, _connection: Connection) -> Command:
        """Tell the settings of topics."""
        header, content = decode_header(TopicPageHeader, command), self._topics.content()
        wish = _Wish(header.topic_seq, header.data_version, header.max_topic_num)
        page = self._topic_pages.cut(content.topic_config_table, content.data_version, wish)
        told = TopicTables(
            data_version=content.data_version,
            mapping_data_version=self._mapping_version,
            topic_config_table=dict(page),
        )
        reply = TopicPageReply(total_topic_num=len(content.topic_config_table))
        return Command.response(ResponseCode.SUCCESS, ext=reply, body=encode_settings(told))

    @answers(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    def tell_groups(self, command: Command, _connection: Connection) -> Command:
        """Tell the settings of groups, and what was forbidden to them."""
        header, content = decode_header(GroupPageHeader, command), self._groups.content()
        wish = _Wish(header.group_seq, header.data_version, header.max_group_num)
        page = self._group_pages.cut(content.subscription_group_table, content.data_version, wish)
        forbidden = content.forbidden_table
        if page is not content.subscription_group_table:
            forbidden = {group: forbidden[group] for group in forbidden if group in page}
        told = replace(content, subscription_group_table=dict(page), forbidden_table=forbidden)
        reply = GroupPageReply(total_group_num=len(content.subscription_group_table))
        return Command.response(ResponseCode.SUCCESS, ext=reply, body=encode_settings(told))


class OffsetTables:
    """Answers with whole tables of offsets."""

    def __init__(self, offsets: OffsetTable, delays: DelayProgress) -> None:
        self._offsets = offsets
        self._delays = delays

    @answers(Code.GET_ALL_CONSUMER_OFFSET)
    def tell_offsets(self, _command: Command, _connection: Connection) -> Command:
        """Tell the offsets of all groups; their table may be long, and names with an ``@`` are no numbers."""
        content = self._offsets.content()
        head = encode_settings(replace(content, offset_table={})).removesuffix(b"{}}")
        return Command.response(ResponseCode.SUCCESS, body=b"%b%b}" % (head, encode_numbered(content.offset_table)))

    @answers(Code.GET_ALL_DELAY_OFFSET)
    def tell_delays(self, _command: Command, _connection: Connection) -> Command:
        """Tell how far each delay level has been delivered."""
        body = write_json(self._delays.content(), quotes_integer_keys=False)
        return Command.response(ResponseCode.SUCCESS, body=body)
