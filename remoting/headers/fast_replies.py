"""The two answers that are sent all the time, built by formatting bytes instead of encoding structs.

    SendReplies.stored        answer to 10, 310, 320: SUCCESS with the place of the message
    encode_pull_reply         answer to 11, 361: any code, with the offsets and the records as they lie in the log

Only for JSON requests; a binary one gets the same fields the long way. ``spec/remoting.md`` §4.3, §4.4.
"""

from collections.abc import Sequence

import msgspec

from ..codec.codes import VERSION, ResponseCode
from ..codec.command import JSON, RESPONSE, Command
from ..codec.frames import PREFIX, Buffer, Encoded, encode_command
from .pull import PullReply
from .send import SendReply

_TAIL = b'"flag":1,"language":"PYTHON","opaque":%d,'
_END = b'"serializeTypeCurrentRPC":"JSON","version":%d}' % VERSION
_SENT = (
    b'{"code":0,"extFields":{"msgId":"%b","queueId":"%d","queueOffset":"%d","transactionId":%b,'
    b'"MSG_REGION":@region,"TRACE_ON":@trace},' + _TAIL + _END
)
_PULLED = (
    b'{"code":%d,"extFields":{"suggestWhichBrokerId":"%d","nextBeginOffset":"%d","minOffset":"%d","maxOffset":"%d"},'
    + _TAIL
    + b'"remark":"%b",'
    + _END
)
_quote = msgspec.json.Encoder().encode


class SendReplies:
    """Answers of one broker to stored messages."""

    def __init__(self, region: str = "DefaultRegion", *, traces: bool = True) -> None:
        self._region = region
        self._trace = "true" if traces else "false"
        template = _SENT.replace(b"@region", _quote(region).replace(b"%", b"%%"))
        self._template = template.replace(b"@trace", _quote(self._trace))

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
