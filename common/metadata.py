"""The settings of topics and consumer groups, in the JSON that Java keeps them in and tells them in.

The same values stand in ``config/topics.json`` and ``config/subscriptionGroup.json`` (spec store.md §9), in
registrations and in the answers to administrators (``TopicConfig``, ``SubscriptionGroupConfig``; remoting.md §5.5). 4.9
leaves out a group's ``attributes``, ``consumeMessageOrderly``, ``consumeTimeoutMinute``, ``groupRetryPolicy`` and
``groupSysFlag``: the defaults stand for them.
"""

from enum import StrEnum
from typing import Annotated, Final

import msgspec
from msgspec import field

from .java_json import Int32, Int64

MAX_TEXT_CHARACTERS: Final = 4_096
MAX_ENTRIES: Final = 256
"""Of the attributes, the waits and the pinned subscriptions of a group: they are kept, saved and told to everybody."""

Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT_CHARACTERS)]
_FEW = msgspec.Meta(max_length=MAX_ENTRIES)


class DataVersion(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    """Which state of its topics a broker has announced; equal when all three are."""

    counter: Int64 = 0
    state_version: Int64 = 0
    timestamp: Int64 = 0

    def is_older(self, than: "DataVersion") -> bool:
        """Tell whether it stands for a state before another one (``DataVersion.compare``)."""
        own, other = ((each.state_version, each.counter, each.timestamp) for each in (self, than))
        return own < other


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


class TopicConfigList(msgspec.Struct, rename="camel", kw_only=True):
    """Topics to be made or changed together (``CreateTopicListRequestBody``)."""

    topic_config_list: list[TopicConfig]


class TopicConfigTable(msgspec.Struct, rename="camel", kw_only=True):
    """The topics of a broker (``TopicConfigSerializeWrapper``); the mapping tables of static topics are left out."""

    data_version: DataVersion = DataVersion()
    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict[str, TopicConfig])


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


class SubscriptionGroupList(msgspec.Struct, rename="camel", kw_only=True):
    """Groups to be made or changed together."""

    group_config_list: list[SubscriptionGroupConfig]


class SubscriptionGroupTable(msgspec.Struct, rename="camel", kw_only=True):
    """The groups of a broker (``SubscriptionGroupWrapper``)."""

    data_version: DataVersion = DataVersion()
    forbidden_table: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    subscription_group_table: dict[str, SubscriptionGroupConfig] = field(
        default_factory=dict[str, SubscriptionGroupConfig]
    )
