"""Headers of messages that failed (``spec/remoting.md`` §4.8).

    36  CONSUMER_SEND_MSG_BACK  SendBackHeader

The message itself is not sent: the broker finds it at ``log_offset``.
"""

import msgspec
from msgspec import field

from ..codec.fields import Int32, Int64


class SendBackHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which message a consumer could not process; level 0 leaves the delay to the broker, below 0 gives it up."""

    log_offset: Int64 = field(name="offset")
    group: str
    delay_level: Int32
    origin_message_id: str | None = field(name="originMsgId", default=None)
    origin_topic: str | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Int32 | None = None
    broker_name: str | None = field(name="bname", default=None)
