"""Bodies of subscription groups and of their members (``spec/remoting.md`` §4.11, §5.5).

    201  SubscriptionGroupTable    200, 352  SubscriptionGroupConfig    203  ConsumerConnections    222  ResetOffsets

4.9 leaves out ``attributes``, ``consumeMessageOrderly``, ``consumeTimeoutMinute``, ``groupRetryPolicy`` and
``groupSysFlag``: the defaults stand for them.
"""

from enum import StrEnum
from typing import Annotated, Final

import msgspec
from msgspec import field

from ...common.message import MessageQueue
from ..codec.command import Int32, Int64
from .client import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData
from .route import DataVersion

MAX_TEXT_CHARACTERS: Final = 4_096
MAX_ENTRIES: Final = 256
"""Of the attributes, the waits and the pinned subscriptions of a group: they are kept, saved and told to everybody."""

Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT_CHARACTERS)]
_FEW = msgspec.Meta(max_length=MAX_ENTRIES)


class RetryPolicyType(StrEnum):
    """How long a group's messages wait before they come again (``GroupRetryPolicyType``, in Java's order)."""

    EXPONENTIAL = "EXPONENTIAL"
    CUSTOMIZED = "CUSTOMIZED"


class ExponentialRetry(msgspec.Struct, kw_only=True):
    """Waits in ms that grow by a factor (``ExponentialRetryPolicy``)."""

    initial: Int64 = 5_000
    max: Int64 = 7_200_000
    multiplier: Int64 = 2


class CustomizedRetry(msgspec.Struct, kw_only=True):
    """The waits one by one, in ms (``CustomizedRetryPolicy``)."""

    next: Annotated[list[Int64], _FEW] = field(default_factory=list[int])


class GroupRetryPolicy(msgspec.Struct, rename="camel", kw_only=True):
    """A group's retry policy; it is kept and told, and delays go by the broker's levels."""

    type: RetryPolicyType = RetryPolicyType.CUSTOMIZED
    exponential_retry_policy: ExponentialRetry | None = None
    customized_retry_policy: CustomizedRetry | None = None


class SimpleSubscription(msgspec.Struct, rename="camel", kw_only=True):
    """A subscription that is pinned to a group (``SimpleSubscriptionData``)."""

    expression: Text | None = None
    expression_type: Text | None = None
    topic: Text | None = None
    version: Int64 = 0


class SubscriptionGroupConfig(msgspec.Struct, rename="camel", kw_only=True):
    """How a consumer group is served."""

    attributes: Annotated[dict[Text, Text], _FEW] = field(default_factory=dict[str, str])
    broker_id: Int64 = 0
    consume_broadcast_enable: bool = True
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_message_orderly: bool = False
    consume_timeout_minute: Int32 = 15
    group_name: str = ""
    group_retry_policy: GroupRetryPolicy = field(default_factory=GroupRetryPolicy)
    group_sys_flag: Int32 = 0
    notify_consumer_ids_changed_enable: bool = True
    retry_max_times: Int32 = 16
    retry_queue_nums: Int32 = 1
    subscription_data_set: Annotated[list[SimpleSubscription], _FEW] | None = None
    which_broker_when_consume_slowly: Int64 = 1


class SubscriptionGroupTable(msgspec.Struct, rename="camel", kw_only=True):
    """The groups of a broker (``SubscriptionGroupWrapper``)."""

    data_version: DataVersion = DataVersion()
    forbidden_table: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    subscription_group_table: dict[str, SubscriptionGroupConfig] = field(
        default_factory=dict[str, SubscriptionGroupConfig]
    )


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
