"""Headers about offsets of queues and of consumers (``spec/remoting.md`` §4.6, §4.11).

14  QUERY_CONSUMER_OFFSET         ConsumerOffsetHeader    OffsetReply
15  UPDATE_CONSUMER_OFFSET        CommitOffsetHeader      -
29  SEARCH_OFFSET_BY_TIMESTAMP    SearchOffsetHeader      OffsetReply
30  GET_MAX_OFFSET                MaxOffsetHeader         OffsetReply
31  GET_MIN_OFFSET                QueueHeader             OffsetReply
32  GET_EARLIEST_MSG_STORETIME    QueueHeader             StoreTimeReply
222 INVOKE_BROKER_TO_RESET_OFFSET ResetOffsetHeader       -

``SearchOffsetHeader.boundary_type`` and ``MaxOffsetHeader.committed`` only come from 5.x clients.
"""

import msgspec
from msgspec import field

from ...common.java_json import Int32, Int64
from ..codec.command import NULL


class QueueHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which queue."""

    topic: str
    queue_id: Int32
    broker_name: str | None = field(name="bname", default=None)


class MaxOffsetHeader(QueueHeader, rename="camel", kw_only=True):
    """Which queue, and whether only what every replica has counts."""

    committed: bool = True


class SearchOffsetHeader(QueueHeader, rename="camel", kw_only=True):
    """Which queue and instant; ``boundary_type`` is LOWER or UPPER in any case."""

    at_ms: Int64 = field(name="timestamp")
    boundary_type: str | None = None


class ConsumerOffsetHeader(QueueHeader, rename="camel", kw_only=True):
    """Whose offset in which queue."""

    consumer_group: str = NULL
    set_zero_if_not_found: bool | None = None


class CommitOffsetHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Whose offset in which queue has moved where; ``None`` is what was sent as no number, or not at all."""

    topic: str
    queue_id: Int32 | None = None
    broker_name: str | None = field(name="bname", default=None)
    consumer_group: str = NULL
    commit_offset: Int64 | None = None


class OffsetReply(msgspec.Struct, rename="camel", kw_only=True):
    """A queue offset."""

    queue_offset: Int64 = field(name="offset")


class StoreTimeReply(msgspec.Struct, rename="camel", kw_only=True):
    """When the first message of a queue was stored; -1 if there is none."""

    stored_at_ms: Int64 = field(name="timestamp")


class ResetOffsetHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Where a group begins again: at an instant, or at the end when that is negative; in all queues or in one."""

    topic: str
    group: str = NULL
    at_ms: Int64 = field(name="timestamp", default=0)
    is_forced: bool = field(name="isForce", default=True)
    queue_id: Int32 = -1
    queue_offset: Int64 | None = field(name="offset", default=None)
