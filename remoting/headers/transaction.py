"""Headers of transactions (``spec/remoting.md`` §4.8, §4.9, §4.12).

    37   END_TRANSACTION             EndTransactionHeader
    39   CHECK_TRANSACTION_STATE     CheckTransactionHeader (broker to client, one-way)
    323  RESUME_CHECK_HALF_MESSAGE   ResumeCheckHeader

A half message is named by its place in the queue of half messages (``half_offset``) and in the log.
"""

import msgspec
from msgspec import field

from ..codec.fields import Int32, Int64


class EndTransactionHeader(msgspec.Struct, rename="camel", kw_only=True):
    """What has become of a transaction: ``outcome`` is a transaction type of ``common/message.py``, 0 for unknown."""

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
