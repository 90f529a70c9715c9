"""Headers of pulling and of message queries, and frames of pulls the short way (``spec/remoting.md`` §4.4, §4.5).

    11, 361  PULL_MESSAGE, LITE_PULL_MESSAGE   PullHeader           PullReply
    12       QUERY_MESSAGE                     QueryMessageHeader   QueryMessageReply
    33       VIEW_MESSAGE_BY_ID                ViewMessageHeader    -

A push consumer does not set ``PULL_SUBSCRIPTION``: its expression is that of its last heartbeat.

Pulls and their answers are sent all the time, so both are written by formatting bytes: ``PullFrames`` encodes once
what never changes for a queue, ``encode_pull_reply`` adds the records as they lie in the log and copies none. Both
give what a ``Command`` with the struct gives, and tests compare them.
"""

from collections.abc import Sequence
from typing import ClassVar, Final

import msgspec
from msgspec import field

from ...common.codes import VERSION
from ...common.java_json import Int32, Int64
from ..codec.command import JSON, NULL, RESPONSE, Command
from ..codec.frames import PREFIX, Buffer, Encoded, encode_command
from ..codec.request_codes import RequestCode


class PullHeader(msgspec.Struct, rename="camel", kw_only=True, gc=False):
    """What a consumer wants next; ``sys_flag`` holds the ``PULL_`` bits of ``message.py``."""

    is_strict: ClassVar[bool] = True
    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_messages: Int32 = field(name="maxMsgNums")
    sys_flag: Int32
    commit_offset: Int64 = 0
    suspend_ms: Int64 = field(name="suspendTimeoutMillis", default=0)
    subscription: str | None = None
    sub_version: Int64 = 0
    expression_type: str | None = None
    max_bytes: Int32 | None = field(name="maxMsgBytes", default=None)
    request_source: Int32 | None = None
    broker_name: str | None = field(name="bname", default=None)


class PullReply(msgspec.Struct, rename="camel", kw_only=True):
    """Where to pull next; all four offsets are mandatory, also when nothing was found."""

    suggest_which_broker_id: Int64 = 0
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
    offset_delta: Int64 | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
    forbidden_type: Int32 | None = None


class QueryMessageHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which messages, by key, unique key or tag."""

    topic: str = NULL
    key: str = NULL
    max_messages: Int32 = field(name="maxNum")
    begin_ms: Int64 = field(name="beginTimestamp")
    end_ms: Int64 = field(name="endTimestamp")
    is_unique_key: bool | None = field(name="_UNIQUE_KEY_QUERY", default=None)
    index_type: str | None = None
    last_key: str | None = None


class QueryMessageReply(msgspec.Struct, rename="camel", kw_only=True):
    """How far the index has come."""

    index_updated_at_ms: Int64 = field(name="indexLastUpdateTimestamp")
    index_updated_log_offset: Int64 = field(name="indexLastUpdatePhyoffset")


class ViewMessageHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which stored record."""

    log_offset: Int64 = field(name="offset")
    topic: str | None = None


_quote = msgspec.json.Encoder().encode
_CHANGING: Final = ("queueOffset", "maxMsgNums")
_PATTERN: Final = (
    b'{"code":%d,"extFields":%b,"queueOffset":"%%d","maxMsgNums":"%%d"},"flag":0,"language":"PYTHON","opaque":%%d,'
    b'"serializeTypeCurrentRPC":"JSON","version":%d}'
)


class PullFrames:
    """Makes the frames of pulls that differ in offset and number of messages only."""

    __slots__ = ("_pattern",)

    def __init__(self, header: PullHeader) -> None:
        fields = Command.request(RequestCode.PULL_MESSAGE, header).ext
        constant = _quote({name: value for name, value in fields.items() if name not in _CHANGING})
        self._pattern = _PATTERN % (RequestCode.PULL_MESSAGE, constant[:-1].replace(b"%", b"%%"), VERSION)

    def encode(self, queue_offset: int, max_messages: int, opaque: int) -> bytes:
        """Return the frame of a pull."""
        header = self._pattern % (queue_offset, max_messages, opaque)
        return PREFIX.pack(4 + len(header), len(header)) + header


_PULLED = (
    b'{"code":%%d,"extFields":{"suggestWhichBrokerId":"%%d","nextBeginOffset":"%%d","minOffset":"%%d","maxOffset":"%%d"},'
    b'"flag":1,"language":"PYTHON","opaque":%%d,"remark":"%%b","serializeTypeCurrentRPC":"JSON","version":%d}' % VERSION
)


def encode_pull_reply(
    command: Command, code: int, status: str, reply: PullReply, records: Sequence[Buffer] = ()
) -> Encoded:
    """Return the frame of an answer to a pull; the records are not copied.

    ``status`` is the store's word for what it found (``FOUND``, ``NO_MATCHED_MESSAGE``, ...): capitals and underscores.
    """
    offsets = (reply.suggest_which_broker_id, reply.next_begin_offset, reply.min_offset, reply.max_offset)
    if command.serialize != JSON:
        answer = Command.response(code, status, reply)
        answer.opaque, answer.flag, answer.serialize = command.opaque, RESPONSE, command.serialize
        frame = encode_command(answer)
        size, header = len(frame) - 8, frame[8:]
        kind = command.serialize << 24
    else:
        header = _PULLED % (code, *offsets, command.opaque, status.encode())
        size, kind = len(header), 0
    total = 4 + size + sum(map(len, records))
    head = PREFIX.pack(total, kind | size) + header
    return [head, *records] if records else head
