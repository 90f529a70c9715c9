"""Bodies about the members and the offsets of consumer groups (``spec/remoting.md`` §4.11, §5.5).

    203  ConsumerConnections    222  ResetOffsets

What a group's settings look like (200, 201, 352), says ``common/metadata.py``.
"""

import msgspec
from msgspec import field

from ...common.java_json import Int32, Int64
from ...common.message import MessageQueue
from .client import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData


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
