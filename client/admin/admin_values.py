"""What administrators give and get: topics, groups, brokers, members, progress."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ...common.errors import ConfigError
from ...common.message import MessageQueue
from ...common.metadata import SubscriptionGroupConfig, TopicConfig
from ...common.names import PERM_READ, PERM_WRITE

MOST_QUEUES = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """A topic on one broker (Java's ``TopicConfig``); ``attributes`` such as ``{"message.type": "FIFO"}``."""

    read_queues: int = 8
    write_queues: int = 8
    can_read: bool = True
    can_write: bool = True
    attributes: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("read_queues", "write_queues"):
            value: int = getattr(self, name)
            if not 1 <= value <= MOST_QUEUES:
                raise ConfigError(f"{name} is {value}, allowed are 1 to {MOST_QUEUES}", key=name)

    @property
    def permission(self) -> int:
        """The permission as brokers count it."""
        return PERM_READ * self.can_read | PERM_WRITE * self.can_write


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """How brokers serve a consumer group (Java's ``SubscriptionGroupConfig``)."""

    can_consume: bool = True  # consumeEnable
    can_broadcast: bool = True  # consumeBroadcastEnable
    retries: int = 16  # retryMaxTimes
    retry_queues: int = 1  # retryQueueNums
    tells_members: bool = True  # notifyConsumerIdsChangedEnable

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("retries", "retry_queues"):
            value: int = getattr(self, name)
            if not 0 <= value <= MOST_QUEUES:
                raise ConfigError(f"{name} is {value}, allowed are 0 to {MOST_QUEUES}", key=name)


class BrokerNode(NamedTuple):
    """A broker group of a cluster; id 0 is the master."""

    cluster: str
    name: str
    addresses: Mapping[int, str]


class ReplicaState(NamedTuple):
    """One of the brokers of a group, which has id 0 if it is the master, and how far its copy of the log has come.

    ``behind_bytes`` is what the master has and this one has not: below 0 it is ahead, ``None`` without a master.
    ``in_sync_slaves`` is how many slaves a master counts as in sync.
    """

    broker_id: int
    address: str
    log_end: int
    behind_bytes: int | None
    bytes_in_second: int
    in_sync_slaves: int | None = None


class GroupConnection(NamedTuple):
    """A member of a group; what a broker does not say is empty, or 0."""

    client_id: str
    address: str = ""
    language: str = ""
    version: int = 0


class QueueProgress(NamedTuple):
    """How far a group is in a queue that has messages from ``first_offset`` up to before ``end_offset``."""

    queue: MessageQueue
    committed: int | None
    first_offset: int
    end_offset: int

    @property
    def lag(self) -> int:
        """How many messages the group has not finished; those that are gone do not count."""
        return self.end_offset - max(self.committed or 0, self.first_offset)


class ConsumedQueue(NamedTuple):
    """How far a group is in a queue, as its broker tells it; ``pulled`` counts what was handed out."""

    queue: MessageQueue
    committed: int
    pulled: int
    end_offset: int
    last_at_ms: int

    @property
    def lag(self) -> int:
        """How many messages are not committed."""
        return self.end_offset - self.committed

    @property
    def in_flight(self) -> int:
        """How many messages are handed out and not committed."""
        return max(0, self.pulled - self.committed)


class QueueExtent(NamedTuple):
    """The ends of a queue, and when its last message was stored; 0 when it has none."""

    first_offset: int
    end_offset: int
    last_at_ms: int


class TopicState(NamedTuple):
    """The queues of a topic, and how many messages a second it gets; 0 where brokers before 5.3 do not tell."""

    queues: Mapping[MessageQueue, QueueExtent]
    puts_per_second: float


class ConsumerGroup(NamedTuple):
    """A group that is online: who, how (``PULL`` …), and the expression for each topic; all empty when nobody is."""

    members: tuple[GroupConnection, ...]
    consume_type: str
    message_model: str
    subscriptions: Mapping[str, str]


class GroupProgress(NamedTuple):
    """How far a group is in a topic."""

    queues: tuple[QueueProgress, ...]

    @property
    def lag(self) -> int:
        """How many messages of the topic the group has not finished."""
        return sum(queue.lag for queue in self.queues)


def read_topic(config: TopicConfig) -> TopicSettings:
    """Return a topic as a broker told it."""
    return TopicSettings(
        read_queues=max(config.read_queue_nums, 1),
        write_queues=max(config.write_queue_nums, 1),
        can_read=bool(config.perm & PERM_READ),
        can_write=bool(config.perm & PERM_WRITE),
        attributes=dict(config.attributes),
    )


def read_group(config: SubscriptionGroupConfig) -> GroupSettings:
    """Return a group as a broker told it."""
    return GroupSettings(
        can_consume=config.consume_enable,
        can_broadcast=config.consume_broadcast_enable,
        retries=max(config.retry_max_times, 0),
        retry_queues=max(config.retry_queue_nums, 0),
        tells_members=config.notify_consumer_ids_changed_enable,
    )


def write_group(name: str, settings: GroupSettings) -> SubscriptionGroupConfig:
    """Return a group as brokers want it."""
    return SubscriptionGroupConfig(
        group_name=name,
        consume_enable=settings.can_consume,
        consume_broadcast_enable=settings.can_broadcast,
        retry_max_times=settings.retries,
        retry_queue_nums=settings.retry_queues,
        notify_consumer_ids_changed_enable=settings.tells_members,
    )
