"""Bodies that tell administrators how far topics and groups are (``spec/remoting.md`` §4.11, §5.5).

202  TopicStats             204  ProducerConnections    208  ConsumeStats          300  GroupList
317  BrokerConsumeStats     328  ProducerTable          345  GroupSubscription     353  GroupForbidden
"""

import msgspec
from msgspec import field

from ...common.java_json import Int32, Int64
from ...common.message import MessageQueue
from .client import ClientConnection, SubscriptionData


class QueueExtent(msgspec.Struct, rename="camel", kw_only=True):
    """The ends of a queue, and when its last message was stored (``TopicOffset``); 0 when it has none."""

    last_update_timestamp: Int64 = 0
    max_offset: Int64 = 0
    min_offset: Int64 = 0


class TopicStats(msgspec.Struct, rename="camel", kw_only=True):
    """The queues of a topic, and how many messages a second it gets (``TopicStatsTable``)."""

    offset_table: dict[MessageQueue, QueueExtent] = field(default_factory=dict[MessageQueue, QueueExtent])
    topic_put_tps: float = 0.0


class QueueProgress(msgspec.Struct, rename="camel", kw_only=True):
    """How far a group is in a queue (``OffsetWrapper``): where it ends, what is committed and what was handed out."""

    broker_offset: Int64 = 0
    consumer_offset: Int64 = 0
    last_timestamp: Int64 = 0
    pull_offset: Int64 = 0


class ConsumeStats(msgspec.Struct, rename="camel", kw_only=True):
    """How far a group is in its queues, and how many messages a second it takes."""

    consume_tps: float = 0.0
    offset_table: dict[MessageQueue, QueueProgress] = field(default_factory=dict[MessageQueue, QueueProgress])

    @property
    def lag(self) -> int:
        """How many messages are not committed (``computeTotalDiff``)."""
        return sum(each.broker_offset - each.consumer_offset for each in self.offset_table.values())

    @property
    def in_flight(self) -> int:
        """How many are handed out and not committed (``computeInflightTotalDiff``)."""
        return sum(each.pull_offset - each.consumer_offset for each in self.offset_table.values())


class BrokerConsumeStats(msgspec.Struct, rename="camel", kw_only=True):
    """The progress of all groups of a broker (``ConsumeStatsList``)."""

    broker_addr: str | None = None
    consume_stats_list: list[dict[str, list[ConsumeStats]]] = field(default_factory=list[dict[str, list[ConsumeStats]]])
    total_diff: Int64 = 0
    total_inflight_diff: Int64 = 0


class ProducerConnections(msgspec.Struct, rename="camel", kw_only=True):
    """Who produces in a group (``ProducerConnection``)."""

    connection_set: list[ClientConnection] = field(default_factory=list[ClientConnection])


class GroupList(msgspec.Struct, rename="camel", kw_only=True):
    """Names of groups."""

    group_list: list[str] = field(default_factory=list[str])


class ProducerInfo(msgspec.Struct, rename="camel", kw_only=True):
    """A producer as a broker sees it; Java writes its address with a slash before it."""

    client_id: str = ""
    language: str = ""
    last_update_timestamp: Int64 = 0
    remote_address: str = field(name="remoteIP", default="")
    version: Int32 = 0


class ProducerTable(msgspec.Struct, rename="camel", kw_only=True):
    """All producers of a broker by group (``ProducerTableInfo``)."""

    data: dict[str, list[ProducerInfo]] = field(default_factory=dict[str, list[ProducerInfo]])


class GroupSubscription(msgspec.Struct, rename="camel", kw_only=True):
    """What a group subscribes to of a topic, if it does (``QuerySubscriptionResponseBody``)."""

    group: str = ""
    subscription_data: SubscriptionData | None = None
    topic: str = ""


class GroupForbidden(msgspec.Struct, rename="camel", kw_only=True):
    """Whether a group may read a topic."""

    group: str = ""
    readable: bool = True
    topic: str = ""
