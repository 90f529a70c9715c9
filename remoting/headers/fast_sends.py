"""The frames of send requests, the short way: what never changes is encoded once for each producer and each queue.

    SendFields    the field table of a send, as ``encode_fields(LetterSendHeader(...))`` makes it
    SendFrames    the whole frame, as that of a ``Command`` with this table

Tests compare both with the long way. ``spec/remoting.md`` §1.1, §1.2, §4.3.
"""

from typing import NamedTuple, Protocol

import msgspec

from ...common.message import MessageQueue
from ..codec.codes import VERSION, RequestCode
from ..codec.frames import PREFIX

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
