"""Headers of sending: one struct, two spellings on the wire (``spec/remoting.md`` §4.3).

    10, 324         long names (``SendMessageRequestHeader``)
    310, 320, 325   letters (``SendMessageRequestHeaderV2``)

Any of these codes may come in either spelling; ``decode_send_header`` takes the usual one of the code first. What has a
default is mandatory too, but Java serves requests without it, if it does not have to create the topic.
"""

from typing import ClassVar

import msgspec
from msgspec import field

from ...common.errors import HeaderError
from ..codec.codes import RequestCode
from ..codec.command import Command, decode_header, header_reader
from ..codec.fields import Int32, Int64

LETTER_CODES = frozenset(
    {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2}
)

_BATCH = int(RequestCode.SEND_BATCH_MESSAGE)


class SendHeader(msgspec.Struct, rename="camel", kw_only=True, gc=False):
    """What a sender says about its message; the long spelling."""

    producer_group: str = ""
    topic: str
    default_topic: str = ""
    default_topic_queue_nums: Int32 = 0
    queue_id: Int32
    sys_flag: Int32
    born_at_ms: Int64 = field(name="bornTimestamp")
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Int32 | None = None
    batch: bool | None = None
    broker_name: str | None = field(name="bname", default=None)


class LetterSendHeader(SendHeader, kw_only=True, gc=False):
    """The same in letters."""

    is_strict: ClassVar[bool] = True
    producer_group: str = field(name="a", default="")
    topic: str = field(name="b")
    default_topic: str = field(name="c", default="")
    default_topic_queue_nums: Int32 = field(name="d", default=0)
    queue_id: Int32 = field(name="e")
    sys_flag: Int32 = field(name="f")
    born_at_ms: Int64 = field(name="g")
    flag: Int32 = field(name="h")
    properties: str | None = field(name="i", default=None)
    reconsume_times: Int32 | None = field(name="j", default=None)
    unit_mode: bool | None = field(name="k", default=None)
    max_reconsume_times: Int32 | None = field(name="l", default=None)
    batch: bool | None = field(name="m", default=None)
    broker_name: str | None = field(name="n", default=None)


class SendReply(msgspec.Struct, rename="camel", kw_only=True):
    """Where a message was stored; ``msg_id`` is the offset message id, for a batch one per message and commas."""

    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    region: str | None = field(name="MSG_REGION", default=None)
    trace_on: str | None = field(name="TRACE_ON", default=None)


def decode_send_header(command: Command) -> SendHeader:
    """Return the header of a send request in whichever spelling it came.

    Raises:
        HeaderError: a field is missing or not of its type; the text names the field as the code spells it.
    """
    is_lettered = command.code in LETTER_CODES
    try:
        header = _read_letters(command) if is_lettered else _read_names(command)
    except HeaderError:
        usual, other = (LetterSendHeader, SendHeader) if is_lettered else (SendHeader, LetterSendHeader)
        if ("topic" if is_lettered else "b") not in command.ext or _has_topic(command, usual):
            raise
        return decode_header(other, command)
    return _reread(header, command) if header.batch and command.code != _BATCH else header


_read_letters = header_reader(LetterSendHeader)
_read_names = header_reader(SendHeader)


def _reread(header: SendHeader, command: Command) -> SendHeader:
    """Read once more what says that it is a batch, though its code does not; msgspec takes 1 for true."""
    name = "m" if isinstance(header, LetterSendHeader) else "batch"
    header.batch = command.ext.get(name, "").lower() == "true"
    return header


def _has_topic(command: Command, spelling: type[SendHeader]) -> bool:
    return ("b" if spelling is LetterSendHeader else "topic") in command.ext
