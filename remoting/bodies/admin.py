"""Bodies that tell administrators how far topics and groups are (``spec/remoting.md`` §4.11, §5.5).

202  TopicStats    204  ProducerConnections    208  ConsumeStats    300  GroupList    317  BrokerConsumeStats
"""

import msgspec
from msgspec import field

from ...common.java_json import Int64
from ...common.message import MessageQueue
from .client import ClientConnection


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
