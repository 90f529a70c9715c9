"""The answers to sends; each carries ``MSG_REGION`` and ``TRACE_ON``, which Java's clients read unasked."""

from collections.abc import Sequence

from msgspec.structs import replace

from ..common.errors import DiskFullError, StoreError
from ..common.ids import format_offset_id
from ..remoting.codes import ResponseCode
from ..remoting.command import Command
from ..remoting.frames import FrameParser
from ..remoting.later import Encoded
from ..remoting.replies import SendReplies

_OFFSET_DIGITS = 16


class SendAnswers:
    """Words answers for one broker, whose host stands in the message ids."""

    def __init__(self, replies: SendReplies, store_host: bytes) -> None:
        self._replies = replies
        self._fields = replies.fields()
        self._host_text = ""
        self.set_store_host(store_host)

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

    def stored_inner_batch(self, log_offset: int, queue_id: int, queue_offset: int, unique_key: str) -> Command:
        """Return the answer to a batch that is one record: one id; that of the batch tells the producer so."""
        message_id = f"{self._host_text}{log_offset:016X}"
        return self._replies.stored_inner_batch(message_id, queue_id, queue_offset, unique_key)

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
