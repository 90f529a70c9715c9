"""Headers of POP (``spec/pop.md`` §2, §4, §10, §11; upstream ``PopMessageRequestHeader`` and its neighbours).

    200050  POP_MESSAGE                   PopHeader           PopReply
    200051  ACK_MESSAGE                   AckHeader           -
    200053  CHANGE_MESSAGE_INVISIBLETIME  ChangeLeaseHeader   LeaseReply
    200054  NOTIFICATION                  NotificationHeader  NotificationReply
    200055  POLLING_INFO                  PollingInfoHeader   PollingInfoReply
    200052  PEEK_MESSAGE                  PeekHeader          PopReply

An answer that refuses has all numbers 0, and no texts.
"""

import msgspec
from msgspec import field

from ...common.java_json import Int32, Int64


class PopHeader(msgspec.Struct, rename="camel", kw_only=True):
    """What a consumer wants to be handed; times in ms."""

    consumer_group: str
    topic: str
    queue_id: Int32
    max_messages: Int32 = field(name="maxMsgNums")
    invisible_ms: Int64 = field(name="invisibleTime")
    poll_ms: Int64 = field(name="pollTime")
    born_at_ms: Int64 = field(name="bornTime")
    init_mode: Int32
    expression_type: str | None = field(name="expType", default=None)
    expression: str | None = field(name="exp", default=None)
    is_ordered: bool = field(name="order", default=False)
    attempt_id: str | None = None
    broker_name: str | None = field(name="bname", default=None)


class PopReply(msgspec.Struct, rename="camel", kw_only=True):
    """The lease of what was handed out, and which messages these are (``common/pop_texts.py``)."""

    popped_at_ms: Int64 = field(name="popTime", default=0)
    invisible_ms: Int64 = field(name="invisibleTime", default=0)
    revive_queue_id: Int32 = field(name="reviveQid", default=0)
    rest: Int64 = field(name="restNum", default=0)
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class AckHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which message is done with."""

    consumer_group: str
    topic: str
    queue_id: Int32
    handle: str = field(name="extraInfo")
    queue_offset: Int64 = field(name="offset")
    broker_name: str | None = field(name="bname", default=None)


class ChangeLeaseHeader(AckHeader, kw_only=True):
    """Which message, and how long it shall stay invisible from now on."""

    invisible_ms: Int64 = field(name="invisibleTime")


class LeaseReply(msgspec.Struct, rename="camel", kw_only=True):
    """The lease that a message has now."""

    popped_at_ms: Int64 = field(name="popTime", default=0)
    invisible_ms: Int64 = field(name="invisibleTime", default=0)
    revive_queue_id: Int32 = field(name="reviveQid", default=0)


class NotificationHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Whether there is anything to pop."""

    consumer_group: str
    topic: str
    queue_id: Int32
    poll_ms: Int64 = field(name="pollTime")
    born_at_ms: Int64 = field(name="bornTime")
    is_ordered: bool = field(name="order", default=False)
    attempt_id: str | None = None


class NotificationReply(msgspec.Struct, rename="camel", kw_only=True):
    """Whether there is, and whether there was no room to wait for it."""

    has_message: bool = field(name="hasMsg")
    is_polling_full: bool = field(name="pollingFull")


class PollingInfoHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Under what requests wait."""

    consumer_group: str
    topic: str
    queue_id: Int32


class PollingInfoReply(msgspec.Struct, rename="camel", kw_only=True):
    """How many wait."""

    polling_num: Int32


class PeekHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Of which queues a group wants to see messages that it is not handed."""

    consumer_group: str
    topic: str
    queue_id: Int32
    max_messages: Int32 = field(name="maxMsgNums")
