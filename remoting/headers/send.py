"""What senders say about messages and what they are answered, in structs and the short way (``spec/remoting.md`` §4.3).

    10, 324         long names (``SendMessageRequestHeader``)           SendHeader
    310, 320, 325   letters (``SendMessageRequestHeaderV2``)            LetterSendHeader

Any of these codes may come in either spelling; ``decode_send_header`` takes the usual one of the code first. What has a
default is mandatory too, but Java serves requests without it, if it does not have to create the topic.

Requests and answers of this kind are sent all the time. Therefore both ends write theirs by formatting bytes, in which
everything stands already that never changes for a producer and its queue, or for a broker; tests compare them with what
a ``Command`` with the struct makes. Only JSON is written so; a binary request is answered the long way.

    SendFields    the field table of a send, as ``encode_fields(LetterSendHeader(...))`` makes it
    SendFrames    the whole frame, as that of a ``Command`` with this table
    SendReplies   the answer to 10, 310, 320: SUCCESS with the place of the message
"""

import re
from typing import ClassVar, NamedTuple, Protocol

import msgspec
from msgspec import field

from ...common.codes import VERSION, ResponseCode
from ...common.errors import HeaderError
from ...common.java_json import Int32, Int64
from ...common.message import MessageQueue
from ...common.properties import UNIQ_KEY, header_codecs
from ..codec.command import JSON, Command, decode_header, header_reader
from ..codec.frames import PREFIX, Encoded
from ..codec.request_codes import RequestCode

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


_quote = msgspec.json.Encoder().encode
_CHANGING = ("f", "g", "h", "i")
_PATTERN = (
    b'{"code":%d,"extFields":%b,"f":"%%d","g":"%%d","h":"%%d","i":%%b},"flag":0,"language":"PYTHON","opaque":%%d,'
    b'"serializeTypeCurrentRPC":"JSON","version":%d}'
)


class OutboundFields(Protocol):
    """What the table says about a message, or a batch."""

    @property
    def sys_flag(self) -> int:
        """Bits such as that of a compressed body."""
        ...

    @property
    def flag(self) -> int:
        """The application's own number."""
        ...

    @property
    def property_text(self) -> str:
        """The encoded properties."""
        ...

    @property
    def is_batch(self) -> bool:
        """Whether the body holds several messages."""
        ...


class SendFields:
    """Makes the tables of one producer."""

    __slots__ = ("_constant",)

    def __init__(
        self, producer_group: str, default_topic: str, default_topic_queues: int, *, unit_mode: bool = False
    ) -> None:
        self._constant = {
            "a": producer_group,
            "c": default_topic,
            "d": str(default_topic_queues),
            "j": "0",
            "k": "true" if unit_mode else "false",
        }

    def encode(self, message: OutboundFields, queue: MessageQueue, born_at_ms: int) -> dict[str, str]:
        """Return the table of a send to a queue."""
        fields = self._constant.copy()
        fields["b"] = queue.topic
        fields["e"] = str(queue.queue_id)
        fields["f"] = str(message.sys_flag)
        fields["g"] = str(born_at_ms)
        fields["h"] = str(message.flag)
        fields["i"] = message.property_text
        fields["m"] = "true" if message.is_batch else "false"
        fields["n"] = queue.broker_name
        return fields


class FramedMessage(OutboundFields, Protocol):
    """A message, or a batch, as it travels."""

    @property
    def body(self) -> bytes:
        """The body of the frame."""
        ...

    @property
    def code(self) -> RequestCode:
        """The kind of send."""
        ...


class _NoMessage(NamedTuple):
    is_batch: bool
    sys_flag: int = 0
    flag: int = 0
    property_text: str = ""


class SendFrames:
    """Makes the frames of one producer."""

    __slots__ = ("_fields", "_patterns")

    def __init__(self, fields: SendFields) -> None:
        self._fields = fields
        self._patterns: dict[tuple[MessageQueue, RequestCode], bytes] = {}

    def __repr__(self) -> str:
        return f"<SendFrames {len(self._patterns)} patterns>"

    def encode(self, message: FramedMessage, queue: MessageQueue, born_at_ms: int, opaque: int) -> bytes:
        """Return the frame of a send to a queue."""
        pattern = self._patterns.get((queue, message.code)) or self._make_pattern(message, queue)
        header = pattern % (message.sys_flag, born_at_ms, message.flag, _quote(message.property_text), opaque)
        size, body = len(header), message.body
        return b"".join((PREFIX.pack(4 + size + len(body), size), header, body))

    def _make_pattern(self, message: FramedMessage, queue: MessageQueue) -> bytes:
        fields = self._fields.encode(_NoMessage(message.is_batch), queue, 0)
        constant = _quote({name: value for name, value in fields.items() if name not in _CHANGING})
        pattern = _PATTERN % (message.code, constant[:-1].replace(b"%", b"%%"), VERSION)
        self._patterns[queue, message.code] = pattern
        return pattern


_STORED = (
    b'{"code":0,"extFields":{"msgId":"%b","queueId":"%d","queueOffset":"%d","transactionId":%b,'
    b'"MSG_REGION":@region,"TRACE_ON":@trace},"flag":1,"language":"PYTHON","opaque":%d,'
    b'"serializeTypeCurrentRPC":"JSON","version":@version}'
)


_GAP = re.compile(b"%[bd]")


class StoredMessage(Protocol):
    """Where a message was stored, and its properties."""

    @property
    def log_offset(self) -> int:
        """In the log."""
        ...

    @property
    def queue_id(self) -> int:
        """The queue."""
        ...

    @property
    def queue_offset(self) -> int:
        """In the queue."""
        ...

    @property
    def property_text(self) -> bytes:
        """All properties, as they are stored."""
        ...

    @property
    def properties(self) -> dict[str, str]:
        """The same by their names."""
        ...


class SendReplies:
    """Answers of one broker to stored messages."""

    def __init__(self, region: str = "DefaultRegion", *, traces: bool = True) -> None:
        self._region = self._trace = ""
        self._template = b""
        self._pieces: tuple[bytes, ...] = ()  # of the template
        self.name_region(region, traces=traces)

    def name_region(self, region: str, *, traces: bool) -> None:
        """Say from now on that the broker is in a region, and whether clients shall trace."""
        self._region = region
        self._trace = "true" if traces else "false"
        stored = _STORED.replace(b"@trace", _quote(self._trace)).replace(b"@version", b"%d" % VERSION)
        quoted = _quote(region)
        self._template = stored.replace(b"@region", quoted.replace(b"%", b"%%"))
        self._pieces = tuple([piece.replace(b"@region", quoted) for piece in _GAP.split(stored)])

    def fields(self) -> dict[str, str]:
        """Return the fields that failed sends are answered with too."""
        return {"MSG_REGION": self._region, "TRACE_ON": self._trace}

    def stored(
        self, command: Command, message_id: str, queue_id: int, queue_offset: int, unique_key: str | None
    ) -> Encoded | Command:
        """Return the answer SUCCESS; ``message_id`` is the offset message id, or several with commas."""
        if command.serialize != JSON or unique_key is None:
            return Command.response(
                ResponseCode.SUCCESS, None, self.describe(message_id, queue_id, queue_offset, unique_key)
            )
        try:
            key = _quote(unique_key)
        except UnicodeEncodeError:  # half a surrogate pair
            return Command.response(
                ResponseCode.SUCCESS, None, self.describe(message_id, queue_id, queue_offset, unique_key)
            )
        header = self._template % (message_id.encode(), queue_id, queue_offset, key, command.opaque)
        size = len(header)
        return PREFIX.pack(size + 4, size) + header

    def stored_one(self, command: Command, host_text: str, stored: StoredMessage) -> Encoded | Command:
        """Return the same for a message that stands where its sender wanted it; its id begins with ``host_text``."""
        if header_codecs is not None and command.serialize == JSON:
            frame = header_codecs.answer_send(stored, host_text.encode(), self._pieces, command.opaque)
            if frame is not None:
                return frame
        message_id, key = f"{host_text}{stored.log_offset:016X}", stored.properties[UNIQ_KEY]
        return self.stored(command, message_id, stored.queue_id, stored.queue_offset, key)

    def describe(
        self,
        message_id: str,
        queue_id: int,
        queue_offset: int,
        unique_key: str | None,
        *,
        batch_key: str | None = None,
        recall_handle: str | None = None,
    ) -> SendReply:
        """Return the header of any answer to a stored message; ``batch_key`` says that a batch is one record."""
        return SendReply(
            msg_id=message_id,
            queue_id=queue_id,
            queue_offset=queue_offset,
            transaction_id=unique_key,
            batch_uniq_id=batch_key,
            recall_handle=recall_handle,
            region=self._region,
            trace_on=self._trace,
        )
