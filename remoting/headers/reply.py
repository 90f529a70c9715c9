"""Header of a reply on its way to the client that asked (``spec/remoting.md`` §4.12).

    326  PUSH_REPLY_MESSAGE_TO_CLIENT  ReplyPushHeader

The body is that of the reply, as it was sent.
"""

import msgspec
from msgspec import field

from ..codec.fields import Int32, Int64


class ReplyPushHeader(msgspec.Struct, rename="camel", kw_only=True):
    """What the sender of a reply said about it, and where and when it passed through the broker."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_at_ms: Int64 = field(name="bornTimestamp")
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False
    born_host: str
    store_host: str
    stored_at_ms: Int64 = field(name="storeTimestamp")
