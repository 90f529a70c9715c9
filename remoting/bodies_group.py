"""Bodies of subscription groups (``spec/remoting.md`` §5.5).

    201  SubscriptionGroupTable      200, 352  SubscriptionGroupConfig

4.9 leaves out ``attributes``, ``consumeMessageOrderly``, ``consumeTimeoutMinute``, ``groupRetryPolicy`` and
``groupSysFlag``: the defaults stand for them.
"""

from typing import Any

import msgspec
from msgspec import field

from .bodies_register import DataVersion
from .fields import Int32, Int64


def _customized_retry() -> dict[str, Any]:
    return {"type": "CUSTOMIZED"}


class SimpleSubscription(msgspec.Struct, rename="camel", kw_only=True):
    """A subscription that is pinned to a group (``SimpleSubscriptionData``)."""

    expression: str | None = None
    expression_type: str | None = None
    topic: str | None = None
    version: Int64 = 0


class SubscriptionGroupConfig(msgspec.Struct, rename="camel", kw_only=True):
    """How a consumer group is served."""

    attributes: dict[str, str] = field(default_factory=dict[str, str])
    broker_id: Int64 = 0
    consume_broadcast_enable: bool = True
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_message_orderly: bool = False
    consume_timeout_minute: Int32 = 15
    group_name: str = ""
    group_retry_policy: dict[str, Any] = field(default_factory=_customized_retry)
    group_sys_flag: Int32 = 0
    notify_consumer_ids_changed_enable: bool = True
    retry_max_times: Int32 = 16
    retry_queue_nums: Int32 = 1
    subscription_data_set: list[SimpleSubscription] | None = None
    which_broker_when_consume_slowly: Int64 = 1


class SubscriptionGroupTable(msgspec.Struct, rename="camel", kw_only=True):
    """The groups of a broker (``SubscriptionGroupWrapper``)."""

    data_version: DataVersion = DataVersion()
    forbidden_table: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    subscription_group_table: dict[str, SubscriptionGroupConfig] = field(
        default_factory=dict[str, SubscriptionGroupConfig]
    )
