"""Headers of requests about one message that is stored (``spec/remoting.md`` §4.3, §4.8, §4.9, §4.12).

    36   CONSUMER_SEND_MSG_BACK         SendBackHeader
    37   END_TRANSACTION                EndTransactionHeader
    39   CHECK_TRANSACTION_STATE        CheckTransactionHeader (broker to client, one-way)
    323  RESUME_CHECK_HALF_MESSAGE      ResumeCheckHeader
    326  PUSH_REPLY_MESSAGE_TO_CLIENT   ReplyPushHeader (broker to client; the body is that of the reply)
    370  RECALL_MESSAGE                 RecallHeader, answered with RecallReply

A half message is named by its place in the queue of half messages (``half_offset``) and in the log. A message that is
sent back does not travel: the broker finds it at ``log_offset``. What is optional in a recall and mandatory in the
specification, Java's broker serves, or refuses in its own words.
"""

import msgspec
from msgspec import field

from ...common.java_json import Int32, Int64


class EndTransactionHeader(msgspec.Struct, rename="camel", kw_only=True):
    """What has become of a transaction: ``outcome`` is a transaction type of ``common/sysflag.py``, 0 for unknown."""

    topic: str | None = None
    producer_group: str
    half_offset: Int64 = field(name="tranStateTableOffset")
    log_offset: Int64 = field(name="commitLogOffset")
    outcome: Int32 = field(name="commitOrRollback")
    is_from_check: bool | None = field(name="fromTransactionCheck", default=None)
    message_id: str = field(name="msgId")
    transaction_id: str | None = None
    broker_name: str | None = field(name="bname", default=None)


class CheckTransactionHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which half message a producer is asked about."""

    topic: str | None = None
    half_offset: Int64 = field(name="tranStateTableOffset")
    log_offset: Int64 = field(name="commitLogOffset")
    message_id: str | None = field(name="msgId", default=None)
    transaction_id: str | None = None
    offset_message_id: str | None = field(name="offsetMsgId", default=None)
    broker_name: str | None = field(name="bname", default=None)


class ResumeCheckHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which message that was given up shall be asked about again, by its offset message id."""

    topic: str | None = None
    message_id: str | None = field(name="msgId", default=None)


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


class RecallHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which message shall not be delivered."""

    topic: str
    recall_handle: str = ""
    producer_group: str | None = None


class RecallReply(msgspec.Struct, rename="camel", kw_only=True):
    """The unique key of that message."""

    msg_id: str
    region: str = field(name="MSG_REGION")


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
