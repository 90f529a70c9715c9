"""Bodies of client life, of groups, and of what consumers answer to brokers (``spec/remoting.md`` §4.7, §4.11, §4.12).

    34   HeartbeatData          38   ConsumerList     41, 42  LockBatchBody, answered LockedQueues   46  CheckClientBody
    203  ConsumerConnections    221  ConsumerOffsets  222  ResetOffsets    307  RunningInfo    309  ConsumedDirectly

What a client says of itself is kept as long as it is connected, so that it is bounded here: see ``MAX_GROUPS`` and
those behind it.

What clients send differs: Go writes ``codeSet`` as texts and versions in nanoseconds, Node leaves ``expressionType``
out, ordinals stand for names (the enums here are in Java's order). ``None`` is what was not sent or is not known.
"""

from enum import StrEnum
from typing import Annotated, Final

import msgspec
from msgspec import field

from ...common.java_json import Int32, Int64
from ...common.message import MessageQueue
from ...common.subscriptions.subscription import MAX_EXPRESSION_CHARACTERS, MAX_TAGS, TAG_TYPE, Subscription
from .body import decode_body

MAX_GROUPS: Final = 1_024
"""Of consumers, and as many of producers, of one client: each has a retry topic, of which name servers are told."""
MAX_SUBSCRIPTIONS: Final = 4_096
"""Topics of one consumer."""
MAX_NAME_CHARACTERS: Final = 1_024
"""Of client ids, and of names of groups and topics before these are looked at; a tag is bounded as its expression."""

Name = Annotated[str, msgspec.Meta(max_length=MAX_NAME_CHARACTERS)]
_Expression = Annotated[str, msgspec.Meta(max_length=MAX_EXPRESSION_CHARACTERS)]
_TAGS: Final = msgspec.Meta(max_length=MAX_TAGS)
_GROUPS: Final = msgspec.Meta(max_length=MAX_GROUPS)
_SUBSCRIPTIONS: Final = msgspec.Meta(max_length=MAX_SUBSCRIPTIONS)


class ConsumeType(StrEnum):
    """Who decides when to consume."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"


class MessageModel(StrEnum):
    """Whether each member of a group gets every message, or its share."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(StrEnum):
    """Where a group begins in a queue that it has no offset for."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class SubscriptionData(msgspec.Struct, rename="camel", kw_only=True):
    """What a consumer wants of one topic."""

    class_filter_mode: bool = False
    code_set: Annotated[list[Int32], _TAGS] = field(default_factory=list[int])
    expression_type: Name = TAG_TYPE
    sub_string: _Expression = "*"
    sub_version: Int64 = 0
    tags_set: Annotated[list[_Expression], _TAGS] = field(default_factory=list[str])
    topic: Name

    @classmethod
    def from_subscription(cls, subscription: Subscription) -> "SubscriptionData":
        """Return the wire form of a subscription."""
        return cls(
            class_filter_mode=subscription.has_class_filter,
            code_set=sorted(subscription.codes),
            expression_type=subscription.expression_type,
            sub_string=subscription.expression,
            sub_version=subscription.version,
            tags_set=sorted(subscription.tags),
            topic=subscription.topic,
        )

    def to_subscription(self) -> Subscription:
        """Return the subscription, tags and codes as the client computed them."""
        return Subscription(
            self.topic,
            self.sub_string,
            frozenset(self.tags_set),
            frozenset(self.code_set),
            expression_type=self.expression_type,
            version=self.sub_version,
            has_class_filter=self.class_filter_mode,
        )


class ConsumerData(msgspec.Struct, rename="camel", kw_only=True):
    """One consumer group of a client."""

    consume_from_where: ConsumeFromWhere | None = None
    consume_type: ConsumeType | None = None
    group_name: Name
    message_model: MessageModel | None = None
    subscription_data_set: Annotated[list[SubscriptionData], _SUBSCRIPTIONS] = field(
        default_factory=list[SubscriptionData]
    )
    unit_mode: bool = False


class ProducerData(msgspec.Struct, rename="camel", kw_only=True):
    """One producer group of a client."""

    group_name: Name


class HeartbeatData(msgspec.Struct, rename="camel", kw_only=True):
    """What a client is, every 30 s."""

    client_id: Name = field(name="clientID")
    consumer_data_set: Annotated[list[ConsumerData], _GROUPS] = field(default_factory=list[ConsumerData])
    heartbeat_fingerprint: Int32 = 0
    producer_data_set: Annotated[list[ProducerData], _GROUPS] = field(default_factory=list[ProducerData])
    without_sub: bool = False


class ConsumerList(msgspec.Struct, rename="camel", kw_only=True):
    """The client ids of a group."""

    consumer_id_list: list[str] = field(default_factory=list[str])


MAX_QUEUES: Final = 16_384
"""Of one request for locks."""
_QUEUES: Final = msgspec.Meta(max_length=MAX_QUEUES)


class LockBatchBody(msgspec.Struct, rename="camel", kw_only=True):
    """Which queues a client wants for itself, or gives back."""

    client_id: Name
    consumer_group: Name
    mq_set: Annotated[list[MessageQueue], _QUEUES] = field(default_factory=list[MessageQueue])
    only_this_broker: bool = False


class _QueueName(msgspec.Struct, rename="camel"):
    topic: Name
    broker_name: Name
    queue_id: Int32


class _PlainLockBatchBody(msgspec.Struct, rename="camel"):
    client_id: Name
    consumer_group: Name
    mq_set: Annotated[list[_QueueName], _QUEUES]
    only_this_broker: bool = False


_decode_plain_lock = msgspec.json.Decoder(_PlainLockBatchBody).decode


def decode_lock_body(body: bytes) -> LockBatchBody:
    """Return the body of 41 or 42; thousands of queues are read at once, which ``decode_body`` would read one by one.

    Raises:
        JsonError: as ``decode_body``.
    """
    try:
        plain = _decode_plain_lock(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return decode_body(LockBatchBody, body)
    queues = [MessageQueue(queue.topic, queue.broker_name, queue.queue_id) for queue in plain.mq_set]
    return LockBatchBody(
        client_id=plain.client_id,
        consumer_group=plain.consumer_group,
        mq_set=queues,
        only_this_broker=plain.only_this_broker,
    )


class LockedQueues(msgspec.Struct, kw_only=True):
    """Which queues the client holds now."""

    queues: list[MessageQueue] = field(name="lockOKMQSet", default_factory=list[MessageQueue])


class CheckedSubscription(SubscriptionData, rename="camel", kw_only=True):
    """A subscription whose expression alone matters."""

    topic: str = ""


class CheckClientBody(msgspec.Struct, rename="camel", kw_only=True):
    """A subscription that a client asks about before it starts."""

    client_id: str | None = None
    group: str | None = None
    namespace: str | None = None
    subscription_data: CheckedSubscription | None = None


class ConsumerOffsets(msgspec.Struct, rename="camel", kw_only=True):
    """How far a consumer has come in its queues (``GetConsumerStatusBody``)."""

    message_queue_table: dict[MessageQueue, Int64] = field(default_factory=dict[MessageQueue, int])
    consumer_table: dict[str, dict[MessageQueue, Int64]] = field(default_factory=dict[str, dict[MessageQueue, int]])


class OffsetForC(msgspec.Struct, rename="camel", kw_only=True):
    """A queue with an offset, as the C++ client reads them (``MessageQueueForC``)."""

    broker_name: str
    queue_offset: Int64 = field(name="offset")
    queue_id: Int32
    topic: str


class ResetOffsetsForC(msgspec.Struct, rename="camel", kw_only=True):
    """Where a group begins again, for the C++ client (``ResetOffsetBodyForC``)."""

    offset_table: list[OffsetForC] = field(default_factory=list[OffsetForC])


class OwnedQueue(msgspec.Struct, rename="camel", kw_only=True):
    """One queue of a consumer (``ProcessQueueInfo``); those of ``transaction`` are taken and not committed."""

    commit_offset: Int64 = 0
    cached_msg_min_offset: Int64 = 0
    cached_msg_max_offset: Int64 = 0
    cached_msg_count: Int32 = 0
    cached_msg_size: Int32 = field(name="cachedMsgSizeInMiB", default=0)
    transaction_msg_min_offset: Int64 = 0
    transaction_msg_max_offset: Int64 = 0
    transaction_msg_count: Int32 = 0
    locked: bool = False
    try_unlock_times: Int64 = 0
    last_lock_timestamp: Int64 = 0
    is_dropped: bool = field(name="droped", default=False)
    last_pull_timestamp: Int64 = 0
    last_consume_timestamp: Int64 = 0


class TopicFigures(msgspec.Struct, kw_only=True):
    """What a consumer did with a topic lately (``ConsumeStatus``): times in ms, messages per second."""

    pull_ms: float = field(name="pullRT", default=0.0)
    pulled_per_second: float = field(name="pullTPS", default=0.0)
    consume_ms: float = field(name="consumeRT", default=0.0)
    succeeded_per_second: float = field(name="consumeOKTPS", default=0.0)
    failed_per_second: float = field(name="consumeFailedTPS", default=0.0)
    failed_in_hour: Int64 = field(name="consumeFailedMsgs", default=0)


class RunningInfo(msgspec.Struct, rename="camel", kw_only=True):
    """What a consumer says of itself (``ConsumerRunningInfo``)."""

    properties: dict[str, str] = field(default_factory=dict[str, str])
    subscription_set: list[SubscriptionData] = field(default_factory=list[SubscriptionData])
    mq_table: dict[MessageQueue, OwnedQueue] = field(default_factory=dict[MessageQueue, OwnedQueue])
    status_table: dict[str, TopicFigures] = field(default_factory=dict[str, TopicFigures])
    user_consumer_info: dict[str, str] = field(default_factory=dict[str, str])
    jstack: str | None = None


class DirectResult(StrEnum):
    """How a listener took a message out of turn (``CMResult``)."""

    CR_SUCCESS = "CR_SUCCESS"
    CR_LATER = "CR_LATER"
    CR_ROLLBACK = "CR_ROLLBACK"
    CR_COMMIT = "CR_COMMIT"
    CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    CR_RETURN_NULL = "CR_RETURN_NULL"


class ConsumedDirectly(msgspec.Struct, rename="camel", kw_only=True):
    """The outcome of a message that was consumed out of turn (``ConsumeMessageDirectlyResult``)."""

    order: bool = False
    auto_commit: bool = True
    consume_result: DirectResult | None = None
    remark: str | None = None
    spent_ms: Int64 = field(name="spentTimeMills", default=0)


class ClientConnection(msgspec.Struct, rename="camel", kw_only=True):
    """A connection of a client, as a broker sees it."""

    client_addr: str = ""
    client_id: str = ""
    language: str = ""
    version: Int32 = 0


class ConsumerConnections(msgspec.Struct, rename="camel", kw_only=True):
    """Who consumes in a group, and what (``ConsumerConnection``)."""

    connection_set: list[ClientConnection] = field(default_factory=list[ClientConnection])
    consume_from_where: ConsumeFromWhere | None = None
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    subscription_table: dict[str, SubscriptionData] = field(default_factory=dict[str, SubscriptionData])


class ResetOffsets(msgspec.Struct, rename="camel", kw_only=True):
    """Where a group begins again (``ResetOffsetBody``)."""

    offset_table: dict[MessageQueue, Int64] = field(default_factory=dict[MessageQueue, int])
