"""The answers to sends; each carries ``MSG_REGION`` and ``TRACE_ON``, which Java's clients read unasked."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ...common.errors import DiskFullError, StoreError
from ...common.ids import format_offset_id
from ...common.properties import UNIQ_KEY
from ...common.record import NewRecord
from ...remoting.codec.codes import ResponseCode
from ...remoting.codec.command import Command
from ...remoting.codec.frames import FrameParser
from ...remoting.codec.later import Encoded
from ...remoting.headers.replies import SendReplies
from ..delay.timerrequest import recall_handle_of

_OFFSET_DIGITS = 16


class Place(NamedTuple):
    """Where a message lies: in the log, and in its queue."""

    log_offset: int
    queue_offset: int


class SendAnswers:
    """Words answers for one broker, whose host stands in the message ids."""

    def __init__(self, replies: SendReplies, store_host: bytes, broker_name: str = "") -> None:
        self._replies = replies
        self._broker_name = broker_name
        self._fields = replies.fields()
        self._host_text = ""
        self.set_store_host(store_host)

    @property
    def fields(self) -> Mapping[str, str]:
        """What each answer carries."""
        return self._fields

    def set_store_host(self, store_host: bytes) -> None:
        """Change the host in the message ids, which must be the one in the records."""
        self._host_text = format_offset_id(store_host, 0)[:-_OFFSET_DIGITS]

    def stored(
        self, command: Command, log_offset: int, queue_id: int, queue_offset: int, unique_key: str | None
    ) -> Command | Encoded:
        """Return the answer to one message that has its place."""
        message_id = f"{self._host_text}{log_offset:016X}"
        return self._replies.stored(command, message_id, queue_id, queue_offset, unique_key)

    def stored_batch(
        self, command: Command, log_offsets: Sequence[int], queue_id: int, queue_offset: int, unique_key: str | None
    ) -> Command | Encoded:
        """Return the answer to a batch: an id for each message, the queue offset of the first."""
        message_ids = ",".join([f"{self._host_text}{log_offset:016X}" for log_offset in log_offsets])
        return self._replies.stored(command, message_ids, queue_id, queue_offset, unique_key)

    def stored_timer(self, place: Place, queue_id: int, parked: NewRecord) -> Command:
        """Return the answer to a message that waits in the timer wheel: with a handle by which it can be recalled."""
        message_id = f"{self._host_text}{place.log_offset:016X}"
        handle = recall_handle_of(parked, self._broker_name)
        unique_key = parked.properties.get(UNIQ_KEY)
        return self._replies.stored_timer(message_id, queue_id, place.queue_offset, unique_key, handle)

    def stored_inner_batch(self, log_offset: int, queue_id: int, queue_offset: int, unique_key: str) -> Command:
        """Return the answer to a batch that is one record: one id; that of the batch tells the producer so."""
        message_id = f"{self._host_text}{log_offset:016X}"
        return self._replies.stored_inner_batch(message_id, queue_id, queue_offset, unique_key)

    def replied(self, queue_id: int, failure: str | None, place: Place | None) -> Command:
        """Return the answer to a reply: why it was not passed on, if it was not, and its place, if it was stored."""
        fields = dict(self._fields)
        if place is not None or failure is None:
            message_id = "0" if place is None else f"{self._host_text}{place.log_offset:016X}"
            queue_offset = 0 if place is None else place.queue_offset
            fields |= {"msgId": message_id, "queueId": str(queue_id), "queueOffset": str(queue_offset)}
        return Command.response(ResponseCode.SUCCESS if failure is None else ResponseCode.SYSTEM_ERROR, failure, fields)

    def unavailable(self, error: StoreError) -> Command:
        """Return the answer to a message that the store does not take; when the disk is full, in Java's words."""
        remark = f"service not available now: {error}"
        if isinstance(error, DiskFullError):
            remark = (
                f"service not available now. It may be caused by one of the following reasons: {error}, "
                "messages are put to the slave, message store has been shut down, etc."
            )
        return self.refused(ResponseCode.SERVICE_NOT_AVAILABLE, remark)

    def late(self, reply: Command | Encoded) -> Command:
        """Return the answer to a stored message that waited too long for the disk: the same fields, another code."""
        if isinstance(reply, Command):
            return replace(reply, code=ResponseCode.FLUSH_DISK_TIMEOUT)
        (stored,) = FrameParser().feed(reply if isinstance(reply, bytes) else b"".join(reply))
        return Command.response(ResponseCode.FLUSH_DISK_TIMEOUT, None, stored.ext)

    def refused(self, code: int, remark: str) -> Command:
        """Return the answer to a message that was not stored."""
        return Command.response(code, remark, self._fields)
