"""How far topics and groups are, and who is connected: what administrators and monitoring ask all day.

202  GET_TOPIC_STATS_INFO          the ends of a topic's queues
203  GET_CONSUMER_CONNECTION_LIST  the members of a consumer group, and what they subscribe to
204  GET_PRODUCER_CONNECTION_LIST  the members of a producer group
208  GET_CONSUME_STATS             how far a group is, queue by queue
300  QUERY_TOPIC_CONSUME_BY_WHO    the groups of a topic: who subscribes to it, and who has offsets
305  GET_SYSTEM_TOPIC_LIST_FROM_BROKER
315  VIEW_BROKER_STATS_DATA        what was counted in the last minute, hour and day
317  GET_BROKER_CONSUME_STATS      how far all groups are

Upstream: ``AdminBrokerProcessor`` (spec remoting.md §4.11, behaviour.md D.2). Unlike it, 317 tells what was handed out
to a group as 208 does, so that what is in flight is never negative.
"""

from collections.abc import Callable, Iterable, Mapping

from ...common.codes import ResponseCode
from ...common.message import MessageQueue
from ...common.metadata import TopicConfig
from ...remoting.bodies.admin import (
    BrokerConsumeStats,
    ConsumeStats,
    GroupList,
    ProducerConnections,
    QueueExtent,
    QueueProgress,
    TopicStats,
)
from ...remoting.bodies.body import encode_body
from ...remoting.bodies.client import (
    ClientConnection,
    ConsumeFromWhere,
    ConsumerConnections,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from ...remoting.bodies.reports import BrokerStats, StatsWindow
from ...remoting.bodies.route import TopicList
from ...remoting.codec.command import Command, decode_header
from ...remoting.codec.request_codes import RequestCode as Code
from ...remoting.headers.admin import StatisticHeader
from ...remoting.headers.client import (
    BrokerProgressHeader,
    ConsumerGroupHeader,
    GroupProgressHeader,
    ProducerGroupHeader,
    TopicHeader,
)
from ...remoting.transport.connection import Connection
from ...remoting.transport.server import answers
from ..group.groups import GroupTable, OffsetTable
from ..group.members import EveryMember, Member, MemberLink
from ..topic.topics import TopicTable
from .named_statistics import NamedStatistics
from .progress import Progress
from .statistics import BrokerStatistics
from .windows import DAY, HOUR, MINUTE, Growth


class ProgressReports:
    """Answers how far topics and groups are."""

    def __init__(
        self,
        progress: Progress,
        statistics: BrokerStatistics,
        broker_name: str,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        members: EveryMember,
        own_address: Callable[[], str],
    ) -> None:
        self._progress = progress
        self._statistics = statistics
        self._broker_name = broker_name
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._members = members
        self._own_address = own_address

    @answers(Code.GET_TOPIC_STATS_INFO)
    def tell_topic(self, command: Command, _connection: Connection) -> Command:
        """Tell the ends of a topic's queues."""
        name = decode_header(TopicHeader, command).topic
        topic = self._topics.get(name)
        if topic is None:
            return Command.response(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        extents = [
            QueueExtent(min_offset=ends.first, max_offset=ends.end, last_update_timestamp=ends.last_at_ms)
            for ends in self._progress.of_topic(topic)
        ]
        table = {MessageQueue(name, self._broker_name, number): one for number, one in enumerate(extents)}
        return _success(TopicStats(offset_table=table, topic_put_tps=self._statistics.puts_per_second(name)))

    @answers(Code.GET_CONSUME_STATS)
    def tell_group(self, command: Command, _connection: Connection) -> Command:
        """Tell how far a group is in a topic, or in all of its topics.

        These are what it subscribes to, while it is online: it is not behind in topics that it has given up, and needs
        no offset to be behind in a new one, unlike in Java. Else they are those that it has offsets of: a group that
        broadcasts keeps them itself, by which tools know it (213).
        """
        header = decode_header(GroupProgressHeader, command)
        group = header.consumer_group
        online = self._members.consumer_group(group)
        subscribed = sorted(online.subscriptions) if online is not None and not online.is_broadcasting else []
        wanted = subscribed or self._offsets.topics_of(group)
        if header.topic:
            wanted = [header.topic] if not subscribed or header.topic in subscribed else []
        elif header.topic_list:
            asked = frozenset(header.topic_list.split(";"))
            wanted = sorted(asked.intersection(subscribed or self._topics.names()))
        return _success(self._stats(group, self._progress.known(wanted)))

    @answers(Code.GET_BROKER_CONSUME_STATS)
    def tell_all_groups(self, command: Command, _connection: Connection) -> Command:
        """Tell how far all groups are, in ordered topics only where these are asked for."""
        only_ordered = decode_header(BrokerProgressHeader, command).is_order
        told = BrokerConsumeStats(broker_addr=self._own_address())
        for group in self._groups.names():
            topics = self._progress.known(self._offsets.topics_of(group))
            found = [self._stats(group, [one]) for one in topics if one.order or not only_ordered]
            told.consume_stats_list.append({group: found})
            told.total_diff += sum(each.lag for each in found)
            told.total_inflight_diff += sum(each.in_flight for each in found)
        return _success(told)

    @answers(Code.QUERY_TOPIC_CONSUME_BY_WHO)
    def tell_groups_of_topic(self, command: Command, _connection: Connection) -> Command:
        """Tell which groups consume a topic, or have done so."""
        topic = decode_header(TopicHeader, command).topic
        groups = {*self._members.groups_subscribed_to(topic), *self._offsets.groups_of(topic)}
        return _success(GroupList(group_list=sorted(groups)))

    def _stats(self, group: str, topics: Iterable[TopicConfig]) -> ConsumeStats:
        stats = ConsumeStats()
        for topic in topics:
            name = topic.topic_name
            stats.consume_tps += self._statistics.reads_per_second(name, group)
            for queue_id, position in enumerate(self._progress.of_group(group, topic)):
                stats.offset_table[MessageQueue(name, self._broker_name, queue_id)] = QueueProgress(
                    broker_offset=position.end,
                    consumer_offset=position.committed,
                    last_timestamp=position.last_at_ms,
                    pull_offset=position.handed_out,
                )
        return stats


class ConnectionReports:
    """Answers who is connected."""

    def __init__(self, members: EveryMember, system_topics: Iterable[str]) -> None:
        self._members = members
        self._system_topics = sorted(system_topics)

    @answers(Code.GET_CONSUMER_CONNECTION_LIST)
    def tell_consumers(self, command: Command, _connection: Connection) -> Command:
        """Tell who is a member of a consumer group."""
        name = decode_header(ConsumerGroupHeader, command).consumer_group
        group = self._members.consumer_group(name)
        if group is None:
            return Command.response(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
        told = ConsumerConnections(
            connection_set=_connections(group.members),
            consume_from_where=ConsumeFromWhere.__members__.get(group.from_where),
            consume_type=ConsumeType.__members__.get(group.consume_type),
            message_model=MessageModel.__members__.get(group.message_model),
            subscription_table={
                topic: SubscriptionData.from_subscription(one) for topic, one in group.subscriptions.items()
            },
        )
        return _success(told)

    @answers(Code.GET_PRODUCER_CONNECTION_LIST)
    def tell_producers(self, command: Command, _connection: Connection) -> Command:
        """Tell who is a member of a producer group."""
        name = decode_header(ProducerGroupHeader, command).producer_group
        members = self._members.producer_group(name)
        if not members:
            return Command.response(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        return _success(ProducerConnections(connection_set=_connections(members)))

    @answers(Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    def tell_system_topics(self, _command: Command, _connection: Connection) -> Command:
        """Tell which topics are not those of users."""
        return _success(TopicList(topic_list=self._system_topics))


class StatisticsReports:
    """Answers what has been counted in the last minute, hour and day."""

    def __init__(self, statistics: NamedStatistics) -> None:
        self._statistics = statistics

    @answers(Code.VIEW_BROKER_STATS_DATA)
    def tell(self, command: Command, _connection: Connection) -> Command:
        """Tell the windows of one statistic; tools take the error for one that has nothing to tell."""
        header = decode_header(StatisticHeader, command)
        found = self._statistics.find(header.stats_name, header.stats_key)
        if found is None:
            remark = f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            return Command.response(ResponseCode.SYSTEM_ERROR, remark)
        told = BrokerStats(
            stats_minute=_window(found[MINUTE]), stats_hour=_window(found[HOUR]), stats_day=_window(found[DAY])
        )
        return _success(told)


def _connections(members: Mapping[MemberLink, Member]) -> list[ClientConnection]:
    return [
        ClientConnection(
            client_addr=connection.peer,
            client_id=member.client.client_id,
            language=member.client.language,
            version=member.client.version,
        )
        for connection, member in members.items()
    ]


def _success(body: object) -> Command:
    return Command.response(ResponseCode.SUCCESS, body=encode_body(body))


def _window(growth: Growth) -> StatsWindow:
    return StatsWindow(sum=growth.total, tps=growth.per_second, avgpt=growth.each_time)
