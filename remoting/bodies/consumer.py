"""Bodies that consumers answer with (``spec/remoting.md`` §4.12, §5.5).

221  ConsumerOffsets      307  RunningInfo      309  ConsumedDirectly
"""

from enum import StrEnum

import msgspec
from msgspec import field

from ...common.message import MessageQueue
from ..codec.fields import Int32, Int64
from .client import SubscriptionData


class ConsumerOffsets(msgspec.Struct, rename="camel", kw_only=True):
    """How far a consumer has come in its queues (``GetConsumerStatusBody``)."""

    message_queue_table: dict[MessageQueue, Int64] = field(default_factory=dict[MessageQueue, int])
    consumer_table: dict[str, dict[MessageQueue, Int64]] = field(default_factory=dict[str, dict[MessageQueue, int]])


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
